"""Show how gradients flow through the student's attention, as tables, in words and as a figure."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cs336_kit.lab.gradient_flow import Flow, OneOutput
from cs336_kit.lab.shown import Shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NOTHING = 1e-6  # what rounding leaves of a gradient that is 0


def shown_flow(measured: Flow) -> Shown:
    """The measurements, ready to be looked at."""
    return Shown(list(_text(measured)), lambda: _draw(measured))


def _text(measured: Flow) -> Iterator[RenderableType]:
    yield _norms_table(measured)
    yield ""
    faults = [*measured.faults, *_bad_gradients(measured)]
    if faults:
        yield Text(
            "Something is wrong with your attention, so what you see is what your code does, and not what attention "
            "does; cs336 debug tells more:"
        )
        yield from (Padding(Text(f"→ {line}", "yellow"), (0, 0, 0, 1)) for line in faults)
    else:
        yield from map(Text, _cut(measured))
    if measured.one_output is not None:
        yield ""
        yield from _one_output(measured, measured.one_output)
    if measured.saturation and not faults:
        yield ""
        yield _saturation_table(measured)


def _table(title: str, columns: Iterable[str], rows: Iterable[Iterable[str]]) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, title=title, title_justify="left")
    for column in columns:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def _norms_table(measured: Flow) -> Table:
    columns = [f"{name}{mask}" for mask in ("", f", {measured.mask}") for name in "QKV"]
    rows = (
        [str(position), *(f"{by_name[name][position]:.3f}" for by_name in measured.norms for name in "QKV")]
        for position in range(len(measured.visible))
    )
    return _table("Norms of the gradients of Q, K and V", ["position", *columns], rows)


def _bad_gradients(measured: Flow) -> Iterator[str]:
    """Say where a gradient is not finite."""
    for name, norms in measured.norms[1].items():
        bad = (~norms.isfinite()).nonzero().flatten().tolist()
        if bad:
            yield (
                f"The gradient of {name} is NaN or infinite at {', '.join(map(str, bad))}. If your answer is finite "
                "there, it was corrected after the softmax, but its gradient still goes through the softmax. Do not "
                "give the softmax a row that is all -inf."
            )


def _cut(measured: Flow) -> Iterator[str]:
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


def _one_output(measured: Flow, found: OneOutput) -> Iterator[RenderableType]:
    title = f"Position {found.query} of the output, {measured.mask} mask: its weights, and norms of its gradients"
    rows = (
        [str(position), f"{weight:.3f}", *(f"{found.norms[name][position]:.3f}" for name in "VKQ")]
        for position, weight in enumerate(found.weights.tolist())
    )
    yield _table(title, ["position", "weight", "gradient of V", "gradient of K", "gradient of Q"], rows)
    if not measured.faults:
        yield Text(
            "\nFor a gradient of length 1 of the output, that of a value is its weight: the output is a weighted sum "
            "of the values. Of the queries, it depends on its own alone."
        )


def _saturation_table(measured: Flow) -> Table:
    rows = (
        [
            str(width),
            *(
                f"{each:.3f}"
                for each in (divided.largest_weight, plain.largest_weight, divided.gradient, plain.gradient)
            ),
        ]
        for width, (divided, plain) in measured.saturation.items()
    )
    columns = ("d_k", "largest weight", "not divided", "gradient of the scores", "not divided")
    return _table("Saturation: q · k divided by √d_k, and not divided", columns, rows)


def _draw(measured: Flow) -> "Figure":
    """The gradients by position, without and with the mask; the saturation by d_k; one output beside its weights."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    rows = 1 + bool(measured.saturation) + (measured.one_output is not None)
    figure = Figure(figsize=(9, 3.3 * rows), layout="constrained")
    grid = figure.subplots(rows, 2, squeeze=False)
    plain, masked = grid[0]
    masked.sharey(plain)
    for axes, by_name, title in zip((plain, masked), measured.norms, ("no mask", f"{measured.mask} mask"), strict=True):
        for name, marker in zip("QKV", "os^", strict=True):
            axes.plot(by_name[name].numpy(), marker=marker, label=f"gradient of {name}")
        axes.set(title=title, xlabel="position")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    plain.set(ylabel="norm of the gradient", ylim=(0, None))
    plain.legend()
    if measured.one_output is not None:
        _draw_one_output(grid[1, 0], grid[1, 1], measured.one_output)
    if measured.saturation:
        _draw_saturation(grid[-1, 0], grid[-1, 1], measured)
    return figure


def _draw_one_output(weights: "Axes", gradients: "Axes", found: OneOutput) -> None:
    from matplotlib.ticker import MaxNLocator

    places = range(len(found.weights))
    weights.bar(places, found.weights.numpy(), color="tab:gray")
    weights.set(title=f"weights of position {found.query} of the output", xlabel="position", ylim=(0, None))
    for name, marker in zip("QKV", "os^", strict=True):
        gradients.plot(places, found.norms[name].numpy(), marker=marker, label=f"gradient of {name}")
    gradients.set(title=f"norm of its gradients, for position {found.query} alone", xlabel="position", ylim=(0, None))
    gradients.legend()
    for axes in (weights, gradients):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _draw_saturation(weights: "Axes", gradients: "Axes", measured: Flow) -> None:
    widths = list(measured.saturation)
    for which, label in enumerate(("divided by √d_k", "not divided")):
        of_width = [pair[which] for pair in measured.saturation.values()]
        weights.plot(widths, [found.largest_weight for found in of_width], marker="o", label=label)
        gradients.plot(widths, [found.gradient for found in of_width], marker="o", label=label)
    for axes in (weights, gradients):
        axes.set_xscale("log", base=2)
        axes.set_xticks(widths, map(str, widths))
        axes.set(xlabel="d_k", ylim=(0, None))
    weights.set(title="largest weight of a query", ylim=(0, 1.05))
    gradients.set(title="norm of the gradient that reaches the scores")
    weights.legend()
