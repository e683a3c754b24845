"""Attention, from softmax to causal multi-head self-attention."""

import importlib.metadata

__version__ = importlib.metadata.version("cs336_basics")
