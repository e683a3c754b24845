import torch


def rope(x, positions, theta, d_k):
    k = torch.arange(d_k // 2)
    angles = positions.unsqueeze(-1) / torch.pow(theta, 2 * k / d_k)
    even = x[..., 0::2] * torch.cos(angles) - x[..., 1::2] * torch.sin(angles)
    odd = x[..., 0::2] * torch.sin(angles) + x[..., 1::2] * torch.cos(angles)
    return torch.stack((even, odd), dim=-1).reshape(*even.shape[:-1], d_k)
