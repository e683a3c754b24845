"""The flow of gradients through the student's attention: measured, and as tables, in words and as a figure.

Which of them reach the queries, keys and values, and what becomes of them when scores are large.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text
from torch import Tensor

from cs336_kit.lab.bad_input import BadInput
from cs336_kit.lab.diagnosis import Diagnosis, diagnose, set_beside_pytorch
from cs336_kit.lab.student import Attention, Student, find_gradients
from cs336_kit.lab.view import View, make_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Each figure is a mean over this many draws.
DRAWS = 64
WIDTHS = (1, 4, 16, 64, 256, 1024)
MASKS = ("causal", "padding", "empty row")
NOTHING = 1e-6  # what rounding leaves of a gradient that is 0
ROUNDING = 1e-4  # more than it does to any other, of numbers around 1

# For each of Q, K and V a number for each position.
Norms = dict[str, Float[Tensor, " position"]]


@dataclass(frozen=True)
class Flow:
    """All that was measured.

    Args:
        mask: the name of the mask.
        visible: the mask, True where a query may attend to a key.
        diagnosis: of these calls; if there is anything wrong, nothing may be explained.
        norms: the norms of the gradients of Q, K and V by position, without a mask and with it.
        saturation: for each d_k, what `measure_saturation` gives with the division by its root, and without; empty if
            the answers are wrong.
        one_output: in one draw, of the position that was asked for: its weights, and the norms of the gradients for a
            gradient of length 1 of the output.
    """

    mask: str
    visible: Bool[Tensor, "queries keys"]
    diagnosis: Diagnosis
    norms: list[Norms]
    saturation: dict[int, list[tuple[float, float]]]
    query: int | None
    one_output: tuple[Float[Tensor, " position"], Norms] | None


def measure_flow(student: Student, length: int, d_k: int, mask: str, query: int | None, seed: int) -> Flow:
    """Measure it all.

    Args:
        student: whose attention it is.
        length: number of positions.
        d_k: length of queries, keys and values.
        mask: one of MASKS.
        query: the position of the output to look at more closely, if any.
        seed: of the draws.

    Raises:
        BadInput: there is no such mask or position.
        click.ClickException: the student's code raises an error, or gives no tensor of the right shape.
    """
    if mask not in MASKS:
        raise BadInput(f"there is no mask {mask}: choose one of {', '.join(MASKS)}")
    if query is not None and not 0 <= query < length:
        raise BadInput(f"there is no position {query}: choose one from 0 to {length - 1}")
    visible = torch.ones(length, length, dtype=torch.bool)
    if mask == "causal":
        visible = visible.tril()
    elif mask == "padding":
        visible[:, -(length // 4 or 1) :] = False
    else:
        visible[-1] = False
    Q, K, V, output_gradient = _draw_tensors(length, d_k, seed)
    cases = [
        set_beside_pytorch(name, {"Q": Q, "K": K, "V": V, "mask": each}, ROUNDING, output_gradient)
        for name, each in (("no mask", None), (mask, visible))
    ]
    with student.in_words():
        of_draws = [measure_norms(student.differentiable, Q, K, V, each, output_gradient) for each in (None, visible)]
        norms = [{name: norm.mean(dim=0) for name, norm in each.items()} for each in of_draws]
        diagnosis = diagnose(student, cases)
        saturation = {
            width: [measure_saturation(student.differentiable, length, width, scaled, seed) for scaled in (True, False)]
            for width in (WIDTHS if diagnosis.passed else ())
        }
        one_output = None if query is None else _measure_one_output(student, length, d_k, visible, query, seed)
    return Flow(mask, visible, diagnosis, norms, saturation, query, one_output)


def _measure_one_output(
    student: Student, length: int, d_k: int, mask: Bool[Tensor, "queries keys"], query: int, seed: int
) -> tuple[Float[Tensor, " position"], Norms]:
    """In the first draw: a mean over draws would hide that the gradient of a value is its weight."""
    Q, K, V, output_gradient = (x[0] for x in _draw_tensors(length, d_k, seed))
    direction = torch.zeros_like(output_gradient)
    direction[query] = output_gradient[query] / output_gradient[query].norm()
    norms = measure_norms(student.differentiable, Q, K, V, mask, direction)
    return student.weights(Q, K, mask)[query], norms


def measure_saturation(attention: Attention, length: int, d_k: int, scaled: bool, seed: int) -> tuple[float, float]:
    """Measure what becomes of the scores q · k, divided by √d_k or not, of `length` random queries and keys.

    Of a query, on average: the largest weight, and the norm of the gradient that reaches its scores.

    The scores are handed to attention as queries: when the keys are the identity, q · k is an entry of the query. And
    when the values are the identity, the output is the weights.
    """
    generator = torch.Generator().manual_seed(seed)
    queries, keys = torch.randn(2, DRAWS, length, d_k, generator=generator)
    scores = (queries @ keys.mT / (math.sqrt(d_k) if scaled else 1.0)).requires_grad_()
    identity = torch.eye(length).expand(DRAWS, -1, -1)
    weights = attention(scores * math.sqrt(length), identity, identity, None)
    (gradient,) = find_gradients(weights, torch.randn(weights.shape, generator=generator), [scores])
    return weights.amax(dim=-1).mean().item(), gradient.norm(dim=-1).mean().item()


def _draw_tensors(length: int, d_k: int, seed: int) -> Tensor:
    """Q, K, V and the gradient of the output, each (draw, position, feature)."""
    return torch.randn(4, DRAWS, length, d_k, generator=torch.Generator().manual_seed(seed))


def measure_norms(
    attention: Attention, Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, output_gradient: Tensor
) -> dict[str, Float[Tensor, "... position"]]:
    """The norms of the gradients of Q, K and V at each position."""
    leaves = [x.detach().clone().requires_grad_() for x in (Q, K, V)]
    gradients = find_gradients(attention(*leaves, mask), output_gradient, leaves)
    return {name: gradient.norm(dim=-1) for name, gradient in zip("QKV", gradients, strict=True)}


def view_flow(measured: Flow) -> View:
    """The measurements, ready to be looked at."""
    return View(list(_describe_flow(measured)), lambda: _draw_flow(measured))


def _describe_flow(measured: Flow) -> Iterator[RenderableType]:
    positions = range(len(measured.visible))
    masks = zip(("", f", {measured.mask}"), measured.norms, strict=True)
    columns = [(f"{name}{mask}", norms[name].tolist()) for mask, norms in masks for name in "QKV"]
    yield _tabulate("Norms of the gradients of Q, K and V", "position", positions, columns)
    yield ""
    passed = measured.diagnosis.passed
    if passed:
        yield from map(Text, _explain_mask(measured))
    else:
        yield Text(
            "Something is wrong with your attention, so what you see is what your code does, and not what attention "
            "does.\n"
        )
        yield from measured.diagnosis.tell_failures()
    if measured.one_output:
        weights, norms = measured.one_output
        title = (
            f"Position {measured.query} of the output, {measured.mask} mask: its weights, and norms of its gradients"
        )
        columns = [(f"gradient of {name}", norms[name].tolist()) for name in "VKQ"]
        yield ""
        yield _tabulate(title, "position", positions, [("weight", weights.tolist()), *columns])
        if passed:
            yield Text(
                "\nFor a gradient of length 1 of the output, that of a value is its weight: the output is a weighted "
                "sum of the values. Of the queries, it depends on its own alone."
            )
    if measured.saturation:
        names = ("largest weight", "not divided", "gradient of the scores", "not divided")
        rows = [
            (*weights, *gradients)
            for weights, gradients in (zip(*x, strict=True) for x in measured.saturation.values())
        ]
        columns = list(zip(names, zip(*rows, strict=True), strict=True))
        yield ""
        yield _tabulate("Saturation: q · k divided by √d_k, and not divided", "d_k", measured.saturation, columns)


def _tabulate(title: str, name: str, numbers: Iterable[int], columns: Sequence[tuple[str, Sequence[float]]]) -> Table:
    """The numbers of the rows are in a column with that name, before the others."""
    names, values = zip(*columns, strict=True)
    rows = zip(map(str, numbers), *([f"{x:.3f}" for x in column] for column in values), strict=True)
    return make_table((name, *names), rows, title)


def _explain_mask(measured: Flow) -> Iterator[str]:
    """Say what the mask does."""
    visible, (_, masked) = measured.visible, measured.norms
    hidden = int((~visible).sum())
    share = f"{hidden} of {visible.numel()} pairs of a query and a key ({hidden / visible.numel():.0%})"
    yield f"The {measured.mask} mask hides {share}."
    empty = (~visible.any(-1)).nonzero().flatten().tolist()
    if empty:
        at = ", ".join(map(str, empty))
        yield f"Query {at} may attend to nothing: its output is zeros, whatever Q, K and V are."
    for name, why in (
        ("Q", "where one key is left, its weight is 1 whatever its score is"),
        ("K", "no query sees these keys, or a query that sees only one key"),
        ("V", "no query sees these values"),
    ):
        dry = [p for p, norm in enumerate(masked[name].tolist()) if norm < NOTHING and (name != "Q" or p not in empty)]
        if dry:
            yield f"No gradient reaches {name} at {', '.join(map(str, dry))}: {why}."


def _draw_flow(measured: Flow) -> "Figure":
    """The gradients by position, without and with the mask; the saturation by d_k; one output beside its weights."""
    from matplotlib.figure import Figure

    rows = 1 + bool(measured.saturation) + (measured.one_output is not None)
    figure = Figure(figsize=(9, 3.3 * rows), layout="constrained")
    grid = figure.subplots(rows, 2, squeeze=False)
    plain, masked = grid[0]
    masked.sharey(plain)
    for axes, norms, title in zip((plain, masked), measured.norms, ("no mask", f"{measured.mask} mask"), strict=True):
        _plot_norms(axes, norms, title)
    plain.set(ylabel="norm of the gradient", ylim=(0, None))
    if measured.one_output:
        of_keys, norms = measured.one_output
        weights, gradients = grid[1]
        weights.bar(range(len(of_keys)), of_keys.numpy(), color="tab:gray")
        title = f"weights of position {measured.query} of the output"
        weights.set(title=title, xlabel="position", ylim=(0, None))
        weights.yaxis.set_major_formatter("{x:.0%}")
        weights.locator_params(axis="x", integer=True)
        _plot_norms(gradients, norms, f"norm of its gradients, for position {measured.query} alone")
        gradients.set(ylim=(0, None))
    if measured.saturation:
        _plot_saturation(grid[-1, 0], grid[-1, 1], measured.saturation)
    return figure


def _plot_norms(axes: "Axes", norms: Norms, title: str) -> None:
    for name, marker in zip("QKV", "os^", strict=True):
        axes.plot(norms[name].numpy(), marker=marker, label=f"gradient of {name}")
    axes.set(title=title, xlabel="position")
    axes.locator_params(axis="x", integer=True)
    axes.legend()


def _plot_saturation(weights: "Axes", gradients: "Axes", saturation: dict[int, list[tuple[float, float]]]) -> None:
    for label, found in zip(("divided by √d_k", "not divided"), zip(*saturation.values(), strict=True), strict=True):
        for axes, values in zip((weights, gradients), zip(*found, strict=True), strict=True):
            axes.plot(list(saturation), values, marker="o", label=label)
    for axes in (weights, gradients):
        axes.set_xscale("log", base=2)
        axes.set_xticks(list(saturation), map(str, saturation))
        axes.set(xlabel="d_k", ylim=(0, None))
    weights.set(title="largest weight of a query", ylim=(0, 1.05))
    weights.yaxis.set_major_formatter("{x:.0%}")
    gradients.set(title="norm of the gradient that reaches the scores")
    weights.legend()
