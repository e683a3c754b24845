"""The functions of the lab for notebooks. What they return shows itself in a cell and can be saved."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cs336_kit.lab.bad_input import BadInput
from cs336_kit.lab.call import Call
from cs336_kit.lab.comparison import compare_with_pytorch, describe_comparison
from cs336_kit.lab.contenders import chunked_attention
from cs336_kit.lab.gradient_flow import measure_flow, view_flow
from cs336_kit.lab.picture import Pattern, Picture
from cs336_kit.lab.report import report_call
from cs336_kit.lab.show import view_picture
from cs336_kit.lab.student import Attention, Student
from cs336_kit.lab.view import View

__all__ = ["chunked_attention", "compare", "debug", "flow", "heatmap"]


def heatmap(
    weights: Float[Tensor, "*heads queries keys"],
    queries: Sequence[str] | str,
    keys: Sequence[str] | str | None = None,
    mask: Bool[Tensor, "*#heads #queries #keys"] | None = None,
    values: bool = False,
) -> View:
    """Draw weights of attention, one map for each head, all on one scale of colours.

    Args:
        weights: of one sequence, (queries, keys) or (heads, queries, keys); they may require a gradient.
        queries: the tokens that ask, one for each row; a text is split into its words.
        keys: the tokens that are looked at, one for each column; without them, they are the queries.
        mask: True where a query may attend to a key; what it hides is hatched.
        values: write the percentage into each cell.

    Returns:
        What shows itself in a notebook; `.save(path)` writes a .png, .svg, .html or .txt file.

    Raises:
        BadInput: the shapes do not fit together.
    """
    by_head = torch.as_tensor(weights).detach().cpu().float()
    asking = queries.split() if isinstance(queries, str) else [str(token) for token in queries]
    seen = asking if keys is None else keys.split() if isinstance(keys, str) else [str(token) for token in keys]
    if by_head.ndim > 3 and by_head.shape[:-3].numel() == 1:
        by_head = by_head.reshape(by_head.shape[-3:])
    if by_head.ndim not in (2, 3) or not by_head.numel():
        shape = tuple(by_head.shape)
        raise BadInput(
            f"weights have the shape {shape}, expected (queries, keys) or (heads, queries, keys) of one text"
        )
    for what, count, tokens in (("queries", by_head.shape[-2], asking), ("keys", by_head.shape[-1], seen)):
        if count != len(tokens):
            hint = "; name the keys, too" if what == "keys" and keys is None else ""
            raise BadInput(f"weights are for {count} {what}, and there are {len(tokens)} tokens to name them{hint}")
    hidden = torch.zeros_like(by_head, dtype=torch.bool)
    if mask is not None:
        try:
            hidden = ~torch.as_tensor(mask).detach().cpu().bool().expand(by_head.shape)
        except RuntimeError:
            shapes = f"{tuple(mask.shape)}, the weights {tuple(by_head.shape)}"
            raise BadInput(f"the mask has the shape {shapes}: it should broadcast to that") from None
    if by_head.ndim == 2:
        patterns = [Pattern(0, "0", False, "weights", by_head, hidden)]
    else:
        maps = zip(by_head, hidden, strict=True)
        patterns = [Pattern(0, str(head), False, f"head {head}", *both) for head, both in enumerate(maps)]
    return view_picture(Picture(asking, seen, patterns, [], values))


def debug(
    Q: Float[Tensor, "... queries d_k"],
    K: Float[Tensor, "... keys d_k"],
    V: Float[Tensor, "... keys d_v"],
    mask: Bool[Tensor, "... #queries #keys"] | None = None,
    *,
    attention: Attention | None = None,
) -> View:
    """Report one call of attention, step by step, with what to do; as `cs336 debug` does.

    Args:
        Q, K, V, mask: the arguments, of whatever shapes and dtypes they are.
        attention: a function of your own; without it, `run_scaled_dot_product_attention` of your adapters.py.

    Raises:
        click.ClickException: the function raises an error, or gives no tensor of the right shape.
    """
    call = Call("in a notebook", Q.detach(), K.detach(), V.detach(), None if mask is None else mask.detach())
    return View(list(report_call(call, Student(attention=attention))))


def flow(
    length: int = 8,
    d_k: int = 64,
    mask: str = "causal",
    query: int | None = None,
    seed: int = 0,
    *,
    attention: Attention | None = None,
) -> View:
    """Measure how gradients flow through your attention, as `cs336 flow` does.

    Args:
        length: number of positions.
        d_k: length of queries, keys and values.
        mask: "causal", "padding" or "empty row", where the last query may attend to nothing.
        query: a position of the output to look at more closely.
        seed: of the random tensors.
        attention: a function of your own; without it, `run_scaled_dot_product_attention` of your adapters.py.

    Raises:
        BadInput: there is no such mask or query.
        click.ClickException: the function raises an error, or gives no tensor of the right shape.
    """
    return view_flow(measure_flow(Student(attention=attention), length, d_k, mask, query, seed))


def compare(seed: int = 0, *, attention: Attention | None = None) -> View:
    """Compare your attention with PyTorch's on ten random inputs, as `cs336 compare` does.

    Args:
        seed: of the inputs.
        attention: a function of your own; without it, `run_scaled_dot_product_attention` of your adapters.py.

    Raises:
        click.ClickException: the function raises an error, or gives no tensor of the right shape.
    """
    return View(list(describe_comparison(compare_with_pytorch(Student(attention=attention), seed))))
