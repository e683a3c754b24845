import torch

from cs336_basics.nn.functional import attention_scores


def blockwise_attention(Q, K, V, mask=None, *, block_size=None):
    block_size = block_size or 64
    for rows in Q.split(block_size, -2):
        m, l, o = -torch.inf, 0, 0
        for k, v in zip(K.split(block_size, -2), V.split(block_size, -2)):
            scores = attention_scores(rows, k)
            new = torch.maximum(m, scores.amax(-1, keepdim=True)
            l = torch.exp(m - new) * l + torch.exp(scores - new).sum(-1)
