"""Attention, from softmax to causal multi-head self-attention."""
