"""The grader: cases and hidden tests, the sandbox, grading, and the handout. Students never have it."""
