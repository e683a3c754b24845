"""Tests of the assignment, the engine and the grader."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
