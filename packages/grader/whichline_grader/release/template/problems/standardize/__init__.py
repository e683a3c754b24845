"""CHANGE: what ships about `standardize` beside its tests: `reference.py` is the right program."""
