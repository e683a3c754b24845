"""Following the student's own numbers: where the first one leaves those of a right program, and the proof of it."""
