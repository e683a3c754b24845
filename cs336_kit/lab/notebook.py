"""The functions of the lab for notebooks. What they return shows itself in a cell and can be saved."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cs336_kit.lab.bad_input import BadInput
from cs336_kit.lab.call import Call
from cs336_kit.lab.comparison import compare_with_pytorch, describe_comparison
from cs336_kit.lab.contenders import chunked_attention
from cs336_kit.lab.gradient_flow import measure_flow, view_flow
from cs336_kit.lab.picture import Pattern, Picture, refuse_too_many
from cs336_kit.lab.report import report_call
from cs336_kit.lab.show import view_picture
from cs336_kit.lab.student import Attention, Student
from cs336_kit.lab.view import View

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["chunked_attention", "compare", "debug", "flow", "heatmap"]


def heatmap(
    weights: Any,
    queries: Sequence[str] | str | None = None,
    keys: Sequence[str] | str | None = None,
    mask: Any = None,
    values: bool = False,
    *,
    title: str = "",
    titles: Sequence[str] | None = None,
    vmax: float | None = None,
    scores: bool = False,
    ax: "Axes | None" = None,
) -> Any:
    """Draw weights of attention, several maps side by side, from 0 to 100% on one scale of colours.

    Args:
        weights: of one text, (queries, keys) or (maps, queries, keys), or a list of (queries, keys): tensors, which may
            require a gradient, or numpy arrays.
        queries: the tokens that ask, one for each row; a text is split into its words; without them, numbers.
        keys: the tokens that are looked at, one for each column; without them, they are the queries.
        mask: True where a query may attend to a key; what it hides is hatched.
        values: write the number into each cell.
        title: above all maps.
        titles: of each map; without them, they are heads.
        vmax: the weight that has the strongest colour, 1 for 100%.
        scores: whether these are scores, of which 0 is in the middle of the colours. A score of -inf is hidden.
        ax: axes of matplotlib to draw one map on.

    Returns:
        A View: it shows itself in a notebook, and `.save(path)` writes a .png, .svg, .html or .txt file. None if there
        is `ax`.

    Raises:
        BadInput: the shapes do not fit together, or there are too many weights.
    """
    by_map = _read_maps(weights)
    asking = _name_tokens("queries", queries, by_map.shape[-2])
    seen = _name_tokens("keys", queries if keys is None else keys, by_map.shape[-1])
    hidden = torch.zeros_like(by_map, dtype=torch.bool)
    if mask is not None:
        shown = _read_tensor(mask).bool()
        try:
            hidden = ~shown.expand(by_map.shape)
        except RuntimeError:
            shapes = f"{tuple(shown.shape)}, the weights {tuple(by_map.shape)}"
            raise BadInput(f"the mask has the shape {shapes}: it should broadcast to that") from None
    if scores:
        hidden = hidden | by_map.isneginf()
        by_map = by_map.masked_fill(by_map.isneginf(), 0.0)
        vmax = vmax or float(by_map.nan_to_num(0.0, 0.0, 0.0).abs().amax())
    by_head = by_map.ndim == 3
    names = titles or ([f"head {head}" for head in range(len(by_map))] if by_head else ["" if title else "weights"])
    maps = [*zip(by_map, hidden, strict=True)] if by_head else [(by_map, hidden)]
    if ax is not None and len(maps) > 1:
        raise BadInput(f"there are {len(maps)} maps, and ax has room for one: choose it, such as weights[0]")
    if len(names) != len(maps):
        raise BadInput(f"there are {len(names)} titles for {len(maps)} maps")
    patterns = [Pattern(0, str(place), False, name, *maps[place]) for place, name in enumerate(names)]
    picture = Picture(asking, seen, patterns, [], values, title, vmax or 1.0, scores)
    if ax is None:
        return view_picture(picture)
    from cs336_kit.lab.figure import draw_on

    return draw_on(ax, picture)


def _read_tensor(x: Any) -> Tensor:
    """A tensor, which may require a gradient, or a numpy array."""
    return torch.as_tensor(x).detach()


def _read_maps(weights: Any) -> Float[Tensor, "*maps queries keys"]:
    if isinstance(weights, list | tuple):
        maps = [_read_tensor(each) for each in weights]
        if len({x.shape for x in maps}) > 1:
            raise BadInput(f"the maps have different shapes, {' and '.join(str(tuple(x.shape)) for x in maps)}")
        weights = torch.stack(maps) if maps else []
    weights = _read_tensor(weights).cpu().float()
    shape = tuple(weights.shape)
    if weights.ndim > 3 and weights.shape[:-3].numel() == 1:
        weights = weights.reshape(shape[-3:])
    if weights.ndim not in (2, 3) or not weights.numel():
        raise BadInput(
            f"weights have the shape {shape}, expected (queries, keys) or (heads, queries, keys) of one text"
        )
    refuse_too_many(weights.numel(), "draw a part of them, such as weights[..., :500, :500]")
    return weights


def _name_tokens(what: str, tokens: Sequence[str] | str | None, count: int) -> list[str]:
    if tokens is None:
        return [str(place) for place in range(count)]
    names = tokens.split() if isinstance(tokens, str) else [str(token) for token in tokens]
    if len(names) != count:
        raise BadInput(
            f"weights are for {count} {what}, and there are {len(names)} tokens to name them: name all {what}"
        )
    return names


def debug(
    Q: Float[Tensor | np.ndarray, "... queries d_k"],
    K: Float[Tensor | np.ndarray, "... keys d_k"],
    V: Float[Tensor | np.ndarray, "... keys d_v"],
    mask: Bool[Tensor | np.ndarray, "... #queries #keys"] | None = None,
    *,
    attention: Attention | None = None,
) -> View:
    """Report one call of attention, step by step, with what to do; as `cs336 debug` does.

    Args:
        Q, K, V, mask: the arguments, tensors or numpy arrays, of whatever shapes and dtypes they are.
        attention: a function of your own; without it, `run_scaled_dot_product_attention` of your adapters.py.

    Raises:
        click.ClickException: the function raises an error, or gives no tensor of the right shape.
    """
    Q, K, V = map(_read_tensor, (Q, K, V))
    call = Call("in a notebook", Q, K, V, None if mask is None else _read_tensor(mask))
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
    return View(list(describe_comparison(*compare_with_pytorch(Student(attention=attention), seed))))
