"""The figure of `cs336 flow`."""

from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure

from cs336_kit.lab.gradient_flow import Flow


def write_figure(path: Path, measured: Flow) -> None:
    """Draw the gradients by position, without and with the mask, and the saturation by d_k."""
    figure = Figure(figsize=(9, 6.5), layout="constrained")
    (plain, masked), (weights, gradients) = figure.subplots(2, 2)
    masked.sharey(plain)
    for axes, by_name, title in zip((plain, masked), measured.norms, ("no mask", f"{measured.mask} mask"), strict=True):
        for name, marker in zip("QKV", "os^", strict=True):
            axes.plot(by_name[name].numpy(), marker=marker, label=f"gradient of {name}")
        axes.set(title=title, xlabel="position")
        axes.xaxis.get_major_locator().set_params(integer=True)
    plain.set(ylabel="norm of the gradient", ylim=(0, None))
    plain.legend()

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
    # Text of an SVG stays text.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "cs336"}):
        figure.savefig(path, dpi=120, metadata={"Date": None} if path.suffix == ".svg" else None)
