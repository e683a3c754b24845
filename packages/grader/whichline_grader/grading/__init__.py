"""The trusted side: it holds the expected values and never imports student code."""
