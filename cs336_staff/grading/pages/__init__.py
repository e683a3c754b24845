"""A class as static pages: one for staff, and one for each student."""
