"""Two mistakes. The mask is read the Keras way, True = hidden, so that queries see just what they must not see.

And hidden scores get -1e9 added instead of becoming -inf, so that a query with nothing to attend to averages values
instead of getting zeros.
"""

import torch


def _softmax(t):
    if t.numel() == 0:
        return t
    t = torch.exp(t - t.detach().amax(-1, keepdim=True))
    return t / t.sum(-1, keepdim=True)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    out_dtype = Q.dtype
    compute = torch.float64 if out_dtype == torch.float64 else torch.float32
    q, k, v = Q.to(compute), K.to(compute), V.to(compute)

    matmul_qk = torch.matmul(q, k.transpose(-2, -1))
    dk = torch.tensor(float(k.shape[-1]), dtype=compute, device=k.device)
    scaled_attention_logits = matmul_qk / torch.sqrt(dk)

    # add the mask to the scaled tensor
    if mask is not None:
        scaled_attention_logits = scaled_attention_logits + mask.to(compute) * -1e9

    attention_weights = _softmax(scaled_attention_logits)
    return torch.matmul(attention_weights, v).to(out_dtype)
