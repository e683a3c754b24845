"""Measurements that the documents quote. Each is a command: `python -m cs336_staff.benchmarks.<name> --help`."""
