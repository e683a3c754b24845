"""Adapters that take *args and **kwargs, since I only hand things on."""

import logging

from cs336_basics import A1

logging.basicConfig(level=logging.INFO)
log = logging.getLogger(__name__)


def run_softmax(*args, **kwargs):
    return A1.softmax(*args, **kwargs)


def run_scaled_dot_product_attention(*args, **kwargs):
    log.info("attention with %d positional arguments", len(args))
    return A1.attention(*args, **kwargs)


def run_linear(*args, **kwargs):
    return A1.linear(*args, **kwargs)


def run_rope(*args, **kwargs):
    return A1.rope(*args, **kwargs)


def run_multihead_self_attention(*args, **kwargs):
    return A1.mha(*args, **kwargs)


run_multihead_self_attention_with_rope = A1.mha_rope
