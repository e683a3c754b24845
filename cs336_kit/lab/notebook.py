"""The functions of the lab for notebooks."""

from collections.abc import Sequence
from typing import Any

import torch
from rich.console import Console, Group
from torch import Tensor

from cs336_kit.lab.bad_input import BadInput
from cs336_kit.lab.call import make_call
from cs336_kit.lab.comparison import compare_with_pytorch
from cs336_kit.lab.heatmap import Heatmap
from cs336_kit.lab.report import report_call
from cs336_kit.lab.student import Attention, Student


def heatmap(
    weights: Any,
    queries: Sequence[str] | str | None = None,
    keys: Sequence[str] | str | None = None,
    mask: Any = None,
    *,
    values: bool = False,
    titles: Sequence[str] | None = None,
    vmax: float | None = None,
    scores: bool = False,
) -> Heatmap:
    """Draw weights of attention, several maps side by side, from 0 to 100% on one scale of colours.

    Args:
        weights: of one text, (queries, keys) or (maps, queries, keys), or a list of (queries, keys): tensors, which may
            require a gradient, or numpy arrays.
        queries: the tokens that ask, one for each row; a text is split into its words; without them, numbers.
        keys: the tokens that are looked at, one for each column; without them, they are the queries.
        mask: True where a query may attend to a key; what it hides is hatched.
        values: write the number into each cell of the figure.
        titles: of each map; without them, they are heads.
        vmax: the weight that has the strongest colour, 1 for 100%.
        scores: whether these are scores, of which 0 is in the middle of the colours. A score of -inf is hidden.

    Returns:
        What a notebook shows as a figure, and `print` as text; `.save(path)` writes a .png or .svg file.

    Raises:
        BadInput: the weights are not those of one text, or there are more or fewer names than are needed.
    """
    maps = _read_tensor(weights).cpu().float()
    if maps.ndim < 2 or maps.shape[:-3].numel() != 1 or not maps.numel():
        shape = tuple(maps.shape)
        raise BadInput(f"weights have the shape {shape}, expected (queries, keys) or (heads, queries, keys) of a text")
    maps = maps.reshape(-1, *maps.shape[-2:])
    hidden = torch.zeros_like(maps, dtype=torch.bool)
    if mask is not None:
        hidden = ~_read_tensor(mask).bool().expand(maps.shape)
    if scores:
        hidden, maps = hidden | maps.isneginf(), maps.masked_fill(maps.isneginf(), 0.0)
        vmax = vmax or float(maps.nan_to_num(0.0, 0.0, 0.0).abs().amax())
    names = list(titles or (["weights"] if len(maps) == 1 else [f"head {head}" for head in range(len(maps))]))
    if len(names) != len(maps):
        raise BadInput(f"there are {len(names)} titles for {len(maps)} maps")
    asking = _name_tokens("queries", queries, maps.shape[-2])
    seen = _name_tokens("keys", queries if keys is None else keys, maps.shape[-1])
    return Heatmap(maps, hidden, asking, seen, names, values, vmax or 1.0, scores)


def debug(Q: Any, K: Any, V: Any, mask: Any = None, *, attention: Attention | None = None) -> None:
    """Report one call of your attention, or of this one, step by step, as `cs336 debug` does.

    Q (..., queries, d_k), K (..., keys, d_k), V (..., keys, d_v) and mask are tensors or numpy arrays.

    Raises:
        click.ClickException: the function raises an error, or gives no tensor of the right shape.
    """
    given = {"Q": Q, "K": K, "V": V} | ({} if mask is None else {"mask": mask})
    call = make_call("in a notebook", {name: _read_tensor(x) for name, x in given.items()})
    Console(highlight=False).print(Group(*report_call(call, Student(attention))))


def compare(seed: int = 0, *, attention: Attention | None = None) -> None:
    """Compare your attention, or this one, with PyTorch's on ten random inputs, as `cs336 compare` does."""
    Console(highlight=False).print(Group(*compare_with_pytorch(Student(attention), seed)[1]))


def _read_tensor(x: Any) -> Tensor:
    """A tensor, which may require a gradient, or a numpy array; or a list of them, of one shape."""
    return torch.stack([_read_tensor(each) for each in x]) if isinstance(x, list) else torch.as_tensor(x).detach()


def _name_tokens(what: str, tokens: Sequence[str] | str | None, count: int) -> list[str]:
    if tokens is None:
        return [str(place) for place in range(count)]
    names = tokens.split() if isinstance(tokens, str) else [str(token) for token in tokens]
    if len(names) != count:
        raise BadInput(f"weights are for {count} {what}, and there are {len(names)} tokens to name them")
    return names
