"""What ships of each problem, in a folder for each; `whichline/engine/problem_folder.py` describes the folder."""
