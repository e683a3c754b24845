import torch


class Rope:
    def __init__(self, d_k, theta):
        self.frequency = theta ** (-torch.arange(0, d_k, 2) / d_k)

    def __call__(self, x, positions):
        angle = positions[..., None] * self.frequency
        z = torch.complex(x[..., ::2].contiguous(), x[..., 1::2].contiguous()) * torch.exp(1j * angle)
        return torch.stack((z.real, z.imag), -1).flatten(-2)
