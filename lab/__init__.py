"""The lab: looking at attention as the student's code computes it."""
