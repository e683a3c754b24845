"""All that ships about each problem, in a folder for each: `cs336_kit/engine/room.py` says what is in it."""
