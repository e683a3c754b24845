"""The lab: looking at attention as the student's own code computes it."""
