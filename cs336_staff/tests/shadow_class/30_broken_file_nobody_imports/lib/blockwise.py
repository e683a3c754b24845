import torch


def blockwise_attention(Q, K, V, mask=None, *, block_size=None)
    # TODO tonight
    for i in range(0, Q.shape[-2], block_size):
        for j in range(
