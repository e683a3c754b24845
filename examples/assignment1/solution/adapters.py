"""A solution of CS336's assignment 1 without its tokenizer: functions with the names of its tests/adapters.py."""

import math

import numpy as np
import torch


def run_linear(d_in, d_out, weights, in_features):
    return in_features @ weights.T


def run_embedding(vocab_size, d_model, weights, token_ids):
    return weights[token_ids]


def run_silu(in_features):
    return in_features * torch.sigmoid(in_features)


def run_swiglu(d_model, d_ff, w1_weight, w2_weight, w3_weight, in_features):
    gate = run_silu(in_features @ w1_weight.T)
    up = in_features @ w3_weight.T
    return (gate * up) @ w2_weight.T


def run_softmax(in_features, dim):
    e = torch.exp(in_features - in_features.amax(dim, keepdim=True))
    return e / e.sum(dim, keepdim=True)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.mT / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = run_softmax(scores, -1)
    return weights @ V


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    frequencies = theta ** (-torch.arange(0, d_k, 2) / d_k)
    angles = token_positions[..., None] * frequencies
    cos, sin = angles.cos(), angles.sin()
    even, odd = in_query_or_key[..., 0::2], in_query_or_key[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


def attend(d_model, num_heads, q_weight, k_weight, v_weight, o_weight, x, rotate):
    def split(y):
        return y.unflatten(-1, (num_heads, -1)).transpose(-3, -2)

    q, k, v = split(x @ q_weight.T), split(x @ k_weight.T), split(x @ v_weight.T)
    mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
    heads = run_scaled_dot_product_attention(rotate(q), rotate(k), v, mask)
    return heads.transpose(-3, -2).flatten(-2) @ o_weight.T


def run_multihead_self_attention(
    d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features
):
    weights = q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight
    return attend(d_model, num_heads, *weights, in_features, lambda x: x)


def run_multihead_self_attention_with_rope(
    d_model,
    num_heads,
    max_seq_len,
    theta,
    q_proj_weight,
    k_proj_weight,
    v_proj_weight,
    o_proj_weight,
    in_features,
    token_positions=None,
):
    if token_positions is None:
        token_positions = torch.arange(in_features.shape[-2])

    def rotate(x):
        return run_rope(d_model // num_heads, theta, max_seq_len, x, token_positions[..., None, :])

    weights = q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight
    return attend(d_model, num_heads, *weights, in_features, rotate)


def run_rmsnorm(d_model, eps, weights, in_features):
    mean_square = in_features.pow(2).mean(-1, keepdim=True)
    rms = torch.sqrt(mean_square + eps)
    return in_features / rms * weights


def run_transformer_block(d_model, num_heads, d_ff, max_seq_len, theta, weights, in_features):
    attention = [weights[f"attn.{name}_proj.weight"] for name in ("q", "k", "v", "output")]
    ffn = [weights[f"ffn.{name}.weight"] for name in ("w1", "w2", "w3")]
    normed = run_rmsnorm(d_model, 1e-5, weights["ln1.weight"], in_features)
    x = in_features + run_multihead_self_attention_with_rope(d_model, num_heads, max_seq_len, theta, *attention, normed)
    normed = run_rmsnorm(d_model, 1e-5, weights["ln2.weight"], x)
    return x + run_swiglu(d_model, d_ff, *ffn, normed)


def run_transformer_lm(
    vocab_size, context_length, d_model, num_layers, num_heads, d_ff, rope_theta, weights, in_indices
):
    x = run_embedding(vocab_size, d_model, weights["token_embeddings.weight"], in_indices)
    for layer in range(num_layers):
        prefix = f"layers.{layer}."
        block = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
        x = run_transformer_block(d_model, num_heads, d_ff, context_length, rope_theta, block, x)
    x = run_rmsnorm(d_model, 1e-5, weights["ln_final.weight"], x)
    return run_linear(d_model, vocab_size, weights["lm_head.weight"], x)


def run_get_batch(dataset, batch_size, context_length, device):
    starts = torch.randint(len(dataset) - context_length, (batch_size,))
    inputs = torch.stack([torch.from_numpy(dataset[i : i + context_length].astype(np.int64)) for i in starts])
    targets = torch.stack([torch.from_numpy(dataset[i + 1 : i + 1 + context_length].astype(np.int64)) for i in starts])
    return inputs.to(device), targets.to(device)


def run_cross_entropy(inputs, targets):
    shifted = inputs - inputs.amax(-1, keepdim=True)
    log_sum = shifted.exp().sum(-1).log()
    picked = shifted.gather(-1, targets[..., None])[..., 0]
    return (log_sum - picked).mean()


def run_gradient_clipping(parameters, max_l2_norm):
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm = torch.sqrt(sum((g**2).sum() for g in gradients))
    if norm > max_l2_norm:
        for g in gradients:
            g.mul_(max_l2_norm / (norm + 1e-6))


class AdamW(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state.update(t=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
                state["t"] += 1
                m = state["m"].mul_(beta1).add_(p.grad, alpha=1 - beta1)
                v = state["v"].mul_(beta2).add_(p.grad**2, alpha=1 - beta2)
                rate = group["lr"] * math.sqrt(1 - beta2 ** state["t"]) / (1 - beta1 ** state["t"])
                p.sub_(rate * m / (v.sqrt() + group["eps"]))
                p.mul_(1 - group["lr"] * group["weight_decay"])


def get_adamw_cls():
    return AdamW


def run_get_lr_cosine_schedule(it, max_learning_rate, min_learning_rate, warmup_iters, cosine_cycle_iters):
    if it < warmup_iters:
        return it / warmup_iters * max_learning_rate
    if it > cosine_cycle_iters:
        return min_learning_rate
    progress = (it - warmup_iters) / (cosine_cycle_iters - warmup_iters)
    cosine = math.cos(progress * math.pi)
    return min_learning_rate + 0.5 * (1 + cosine) * (max_learning_rate - min_learning_rate)


def run_save_checkpoint(model, optimizer, iteration, out):
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "iteration": iteration}, out)


def run_load_checkpoint(src, model, optimizer):
    saved = torch.load(src)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    return saved["iteration"]
