"""The lab: looking at attention as the student's code computes it; for notebooks, `cs336_kit.lab.notebook`."""
