"""Submissions that resemble each other, for staff to look at: it charges nothing, and no grade depends on it."""
