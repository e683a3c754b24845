"""All that ships about each problem, in a folder for each: `whichline/engine/room.py` says what is in it."""
