"""The catalogue of known wrong implementations, by id.

Each module holds one family. Students get what these give on the stored cases, with the names and the hints, and never
the code.
"""

from cs336_staff.authoring.misconceptions import (
    attention_axis,
    attention_fill,
    attention_mask,
    attention_module,
    attention_output,
    attention_scale,
    attention_shape,
    blockwise_blocks,
    blockwise_mask,
    blockwise_rescaling,
    linear,
    multihead_attention,
    multihead_heads,
    multihead_mask,
    multihead_rope,
    multihead_weights,
    rope_angles,
    rope_pairs,
    rope_positions,
    softmax_autograd,
    softmax_dim,
    softmax_formula,
    softmax_precision,
    softmax_stability,
)
from cs336_staff.authoring.misconceptions.parts import Misconception

FAMILIES = (
    softmax_dim,
    softmax_stability,
    softmax_formula,
    softmax_precision,
    softmax_autograd,
    attention_scale,
    attention_axis,
    attention_mask,
    attention_fill,
    attention_shape,
    attention_output,
    linear,
    rope_pairs,
    rope_angles,
    rope_positions,
    multihead_heads,
    multihead_mask,
    multihead_weights,
    multihead_rope,
    attention_module,
    multihead_attention,
    blockwise_rescaling,
    blockwise_blocks,
    blockwise_mask,
)

CATALOGUE: dict[str, Misconception] = {entry.id: entry for family in FAMILIES for entry in family.ENTRIES}
