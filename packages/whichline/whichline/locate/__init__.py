"""The search for a mistake: it finds the expression where a student's numbers first go wrong, and proves it."""
