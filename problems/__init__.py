"""All that ships about each problem, in a folder for each: `whichline/engine/problem_folder.py` says what is in it."""
