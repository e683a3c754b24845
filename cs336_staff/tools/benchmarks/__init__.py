"""Measurements that the documents quote, each a command: `uv run python -m cs336_staff.tools.benchmarks.NAME`."""
