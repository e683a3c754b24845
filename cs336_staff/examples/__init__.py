"""Programs to read as a tutorial and to run: each tries a part of a course as a whole."""
