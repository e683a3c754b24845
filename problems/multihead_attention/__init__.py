"""Attention between two sequences."""
