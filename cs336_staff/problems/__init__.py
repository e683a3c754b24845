"""What staff know about each problem, in a folder for each: `cs336_staff/authoring/room.py` says what is in it."""
