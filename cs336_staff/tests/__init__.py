"""Tests of cs336_kit and cs336_staff."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
