"""Decoding: causal self-attention with grouped heads, a sliding window and a cache of keys and values."""
