"""`cs336 show`: attention on a text, in the terminal, as a figure or as a page."""

from pathlib import Path

import click
from rich.console import Console

from cs336_kit.engine.assignment import find_root
from cs336_kit.lab.bad_input import BadInput
from cs336_kit.lab.output_file import check_output
from cs336_kit.lab.page import write_page
from cs336_kit.lab.picture import Pattern, Picture, printable
from cs336_kit.lab.source import Source
from cs336_kit.lab.student import Student
from cs336_kit.lab.terminal import Heatmaps
from cs336_kit.lab.trained import Trained
from cs336_kit.lab.words import Words

EXAMPLES = {"bank": "The bank of the river was steep", "cat": "The cat sat on the mat"}
FORMATS = (".png", ".svg", ".html")
MASKS = {"none": (False,), "causal": (True,), "both": (False, True)}
MOST_WEIGHTS = 30_000_000


@click.command()
@click.argument("text", nargs=-1)
@click.option("--example", type=click.Choice(list(EXAMPLES)), help="A text to begin with.")
@click.option("--mask", type=click.Choice(list(MASKS)), help="None, causal, or both side by side.")
@click.option("--layer", type=int, help="Only this layer, counted from 0.")
@click.option("--head", help="Only this head.")
@click.option("--classifier", metavar="FILE", type=click.Path(path_type=Path), help="What `cs336 train` saved.")
@click.option("--model", metavar="FOLDER", type=click.Path(path_type=Path), help="A Hugging Face model on disk.")
@click.option("-o", "--output", metavar="FILE", type=click.Path(path_type=Path), help="A .png, .svg or .html file.")
def show(
    text: tuple[str, ...],
    example: str | None,
    mask: str | None,
    layer: int | None,
    head: str | None,
    classifier: Path | None,
    model: Path | None,
    output: Path | None,
) -> None:
    """Show where the words of TEXT look, by your own attention.

    What a word is and what it asks for comes from a small table made by hand, or from a classifier or a model. The
    weights are your attention's, which gives them when the values are the identity matrix.
    """
    # A terminal may hand over bytes that are no text.
    written = " ".join(text).encode(errors="replace").decode() if text else EXAMPLES[example or "bank"]
    if text and example:
        raise BadInput("give either TEXT or --example")
    if classifier and model:
        raise BadInput("give either --classifier or --model")
    if output:
        check_output(output, FORMATS)

    source = _source(find_root(Path.cwd()), classifier, model)
    if mask is None:
        mask = "causal" if source.causal else "none"
    page = output is not None and output.suffix == ".html"
    # A page lets its reader choose; a picture of every layer would be too large.
    layers = range(source.layers) if page and layer is None else [layer or 0]
    picture = _picture(source, written, MASKS["both" if page else mask], layers, head)
    if output is None:
        Console(highlight=False).print(Heatmaps(picture))
        return

    try:
        said = _write(picture, mask, output)
    except OSError as error:
        raise BadInput(f"{output} cannot be written: {error.strerror}") from None
    for line in (*picture.warnings(), *picture.notes, *said):
        click.echo(printable(line))
    click.echo(f"{output} is written")


def _source(root: Path, classifier: Path | None, model: Path | None) -> Source:
    student = Student(root)
    if model:
        from cs336_kit.lab.huggingface import Model

        return Model(model, student)
    if classifier:
        return Trained(classifier, student)

    return Words(student)


def _picture(
    source: Source, text: str, masks: tuple[bool, ...], layers: range | list[int], head: str | None
) -> Picture:
    """The patterns that were asked for: layer by layer, all heads without a mask and then all with one."""
    tokens = source.tokens(text)
    if not tokens:
        raise BadInput("the text has no tokens: give at least one word")
    if not all(0 <= layer < source.layers for layer in layers):
        raise BadInput(f"there is no layer {layers[0]}: choose one from 0 to {source.layers - 1}")
    if head is not None and head not in source.heads:
        raise BadInput(f"there is no head {head}: choose one of {', '.join(source.heads)}")
    heads = source.heads if head is None else [head]
    count = len(layers) * len(heads) * len(masks) * len(tokens) ** 2
    if count > MOST_WEIGHTS:
        raise BadInput(
            f"that is {count:,} weights, more than {MOST_WEIGHTS:,}: choose a --layer and a --head, or less text"
        )
    weights = {causal: source.weights(text, causal) for causal in masks}
    patterns = [
        Pattern(
            layer=layer,
            head=name,
            causal=causal,
            title=_title(layer if source.layers > 1 else None, name, causal),
            weights=weights[causal][layer, source.heads.index(name)],
        )
        for layer in layers
        for causal in masks
        for name in heads
    ]
    return Picture(tokens, patterns, source.notes(text))


def _title(layer: int | None, head: str, causal: bool) -> str:
    parts = [] if layer is None else [f"layer {layer}"]
    parts.append(f"head {head}" if head.isdigit() else head)
    return ", ".join([*parts, "causal"] if causal else parts)


def _write(picture: Picture, mask: str, output: Path) -> list[str]:
    """Write a page or a figure; the lines to be said with it."""
    if output.suffix == ".html":
        write_page(picture, mask, output)
        return []
    from cs336_kit.lab.figure import write_figure

    return write_figure(picture, output)
