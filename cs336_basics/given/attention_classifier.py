"""Texts sorted into classes by blocks of self-attention."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from cs336_basics.given.relative_position_bias import RelativePositionBias
from cs336_basics.given.self_attention_block import SelfAttentionBlock
from cs336_basics.nn.linear import Linear


class AttentionClassifier(nn.Module):
    r"""Embeddings, self-attention with a relative position bias, the mean over the real tokens, and logits.

    Sequences of a batch are padded at the end; what the padding holds changes nothing.

    Args:
        vocabulary_size: tokens are numbers below this.
        num_classes: number of logits.
        d_model: length of an embedding.
        num_heads: number of heads, a divisor of `d_model`.
        max_distance: tokens that are further apart than this count as if they were this far apart.
        dropout: of each block, in training.
        num_layers: how many blocks follow each other.
    """

    def __init__(
        self,
        vocabulary_size: int,
        num_classes: int,
        d_model: int,
        num_heads: int,
        max_distance: int,
        dropout: float = 0.0,
        num_layers: int = 1,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, d_model)
        nn.init.normal_(self.embedding.weight, std=d_model**-0.5)  # vectors of length 1, so that what is learnt shows
        self.blocks = nn.ModuleList(
            SelfAttentionBlock(d_model, num_heads, RelativePositionBias(num_heads, max_distance), dropout)
            for _ in range(num_layers)
        )
        self.logits = Linear(d_model, num_classes)

    def forward(
        self, tokens: Int[Tensor, "batch sequence"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch classes"]:
        """The logits of each sequence, of which the first `length` tokens are real. One without tokens gets zeros."""
        real = _real(tokens, lengths)
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, real[:, None])
        total = torch.where(real[..., None], x, 0.0).sum(dim=1)
        return self.logits(total / lengths.clamp(min=1)[:, None])

    def attention_weights(
        self,
        tokens: Int[Tensor, "batch sequence"],
        lengths: Int[Tensor, " batch"],
        mask: Bool[Tensor, "#sequence sequence"] | None = None,
    ) -> Float[Tensor, "batch layer head sequence sequence"]:
        """Compute how much each token attends to each other, in each head; `mask` hides more than the padding."""
        visible = _real(tokens, lengths)[:, None]
        visible = visible if mask is None else visible & mask
        x, by_layer = self.embedding(tokens), []
        for block in self.blocks:
            by_layer.append(block.attention_weights(x, visible))  # type: ignore[operator]
            x = block(x, visible)
        return torch.stack(by_layer, dim=1)


def _real(tokens: Tensor, lengths: Tensor) -> Bool[Tensor, "batch sequence"]:
    return torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]
