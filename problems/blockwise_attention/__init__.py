"""Blockwise attention."""

from problems.scaled_dot_product_attention import on_paper as on_paper
