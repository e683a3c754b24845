"""The functions of the lab for notebooks."""

from cs336_kit.lab.comparison import compare
from cs336_kit.lab.heatmap import heatmap
from cs336_kit.lab.report import debug

__all__ = ["compare", "debug", "heatmap"]
