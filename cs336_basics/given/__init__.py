"""Given to you whole, to be used and read: there is nothing to write in this folder."""
