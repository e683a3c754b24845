"""What only staff have: references, the hidden suite, grading and the handout."""
