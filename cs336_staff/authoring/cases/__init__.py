"""The cases that are stored: what each adapter is called with, public and hidden."""
