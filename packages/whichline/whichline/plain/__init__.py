"""Any pytest suite: which line is wrong, for whoever has tests and a reference with functions of the same names."""
