"""Measurements, each a command: `uv run python -m cs336_staff.benchmarks.NAME`."""
