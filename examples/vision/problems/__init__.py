"""Each problem has a folder beside this file, which is named by its id in assignment.toml."""
