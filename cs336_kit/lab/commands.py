"""The lab's commands. Each imports what it needs when it runs: a table no matplotlib, and help no torch."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click
from rich.console import Console, RenderableType

from cs336_kit.engine.assignment import find_root
from cs336_kit.lab.bad_input import BadInput, check_output
from cs336_kit.lab.view import FIGURES

if TYPE_CHECKING:
    from cs336_kit.lab.classifier import Classifier
    from cs336_kit.lab.figure import Frame
    from cs336_kit.lab.training import Split

FILE = click.Path(path_type=Path)
EXAMPLE = "The bank of the river was steep"
MASKS = {"none": (False,), "causal": (True,), "both": (False, True)}


@click.command()
@click.option("--length", "lengths", multiple=True, default=[128, 256, 512], show_default=True, type=click.IntRange(1))
@click.option("--device", default="cpu", show_default=True, type=click.Choice(["cpu", "cuda"]))
@click.option("--compile", "compiled", is_flag=True, help="Add torch.compile, which takes minutes.")
@click.option("-o", "--output", "outputs", metavar="FILE", multiple=True, type=FILE, help="A .csv, .png or .svg file.")
def bench(lengths: tuple[int, ...], device: str, compiled: bool, outputs: tuple[Path, ...]) -> None:
    """Measure time and memory of your attention, next to PyTorch's.

    With a causal mask, 4 heads of 64 features, in float32. Training is forward and backward through 4 layers. --length
    and -o may be given again.
    """
    for output in outputs:
        check_output(output, (".csv", *FIGURES))
    from cs336_kit.lab.bench import describe_rows, draw_rows, write_csv
    from cs336_kit.lab.measurement import measure
    from cs336_kit.lab.student import Student
    from cs336_kit.lab.view import View

    rows = measure(Student(), sorted(set(lengths)), device, compiled, Console(highlight=False))
    view = View(list(describe_rows(rows)), lambda: draw_rows(rows))
    _print([view])
    for output in outputs:
        if output.suffix.lower() == ".csv":
            write_csv(output, rows)
        else:
            view.save(output)
        click.echo(f"{output} is written")


@click.command()
@click.option("--seed", default=0, show_default=True)
def compare(seed: int) -> None:
    """Compare your attention with PyTorch's on ten random inputs.

    Output and gradients, to 1e-5 in float32. The exit status is 0 if all agree, 1 if not.
    """
    from cs336_kit.lab.comparison import compare_with_pytorch, describe_comparison
    from cs336_kit.lab.student import Student

    comparison = compare_with_pytorch(Student(), seed)
    _print(describe_comparison(*comparison))
    if not comparison[-1].passed:
        raise SystemExit(1)


@click.command()
@click.argument("file", required=False, type=FILE)
@click.option("--case", metavar="NAME", help="A stored case of attention, such as attention/3d-causal.")
def debug(file: Path | None, case: str | None) -> None:
    """Report one call of attention, step by step, and say what to do; alone, list the cases.

    FILE holds tensors named Q, K, V and, if there is one, mask:

    \b
    from safetensors.torch import save_file
    save_file({"Q": Q, "K": K, "V": V, "mask": mask}, "call.safetensors")
    """
    if file and case:
        raise BadInput("give either FILE or --case NAME")
    from cs336_kit.lab.call import list_cases, read_call, read_case
    from cs336_kit.lab.report import report_call
    from cs336_kit.lab.student import Student

    fixtures = find_root(Path.cwd()) / "fixtures"
    if not file and not case:
        click.echo("\n".join(list_cases(fixtures)))
        return
    call = read_call(file) if file else read_case(fixtures, case or "")
    _print(report_call(call, Student()))


@click.command()
@click.option("--length", default=8, show_default=True, type=click.IntRange(2, 64), help="How many positions.")
@click.option("--d-k", default=64, show_default=True, type=click.IntRange(1), help="How long queries and keys are.")
@click.option("--mask", default="causal", show_default=True, type=click.Choice(["causal", "padding", "empty row"]))
@click.option("--query", type=click.IntRange(0), help="Look at this position of the output more closely.")
@click.option("--seed", default=0, show_default=True)
@click.option("-o", "--output", metavar="FILE", type=FILE, help="A figure, .png or .svg.")
def flow(length: int, d_k: int, mask: str, query: int | None, seed: int, output: Path | None) -> None:
    """Show how gradients flow through your attention.

    How large they are at each position, what a mask cuts, and how large scores stop them. With the mask "empty row"
    the last query may attend to nothing.
    """
    if output:
        check_output(output, FIGURES)
    from cs336_kit.lab.gradient_flow import measure_flow, view_flow
    from cs336_kit.lab.student import Student

    view = view_flow(measure_flow(Student(), length, d_k, mask, query, seed))
    _print([view])
    if output:
        view.save(output)
        click.echo(f"\n{output} is written")


@click.command()
@click.argument("text", nargs=-1)
@click.option("--file", type=click.File(encoding="utf-8", errors="replace"), help="Has the text; - is input.")
@click.option("--mask", type=click.Choice(list(MASKS)), help="None, causal, or both side by side.")
@click.option("--layer", type=int, help="Only this layer, counted from 0.")
@click.option("--head", help="Only this head.")
@click.option("--values", is_flag=True, help="In a figure: the percentage in each cell.")
@click.option("--vmax", default=1.0, type=click.FloatRange(0, min_open=True), help="What has the strongest colour.")
@click.option("--classifier", metavar="FILE", type=FILE, help="What `cs336 train` saved.")
@click.option("--model", metavar="FOLDER", type=FILE, help="A Hugging Face model on disk.")
@click.option("-o", "--output", metavar="FILE", type=FILE, help="A .png, .svg or .html file.")
def show(
    text: tuple[str, ...],
    file: TextIO | None,
    mask: str | None,
    layer: int | None,
    head: str | None,
    values: bool,
    vmax: float,
    classifier: Path | None,
    model: Path | None,
    output: Path | None,
) -> None:
    """Show where the words of TEXT look, as computed by your attention.

    What a word is and what it asks for comes from a small table made by hand, or from a classifier or a model. The
    weights are your attention's, which gives them when the values are the identity matrix.
    """
    if text and file:
        raise BadInput("give either TEXT or --file")
    if classifier and model:
        raise BadInput("give either --classifier or --model")
    if output:
        check_output(output, (*FIGURES, ".html"))
    # A terminal may hand over bytes that are not text.
    written = " ".join(text).encode(errors="replace").decode() if text else EXAMPLE
    if file:
        written = " ".join(file.read().split())

    from cs336_kit.lab.picture import make_printable
    from cs336_kit.lab.show import find_picture, find_source, view_picture
    from cs336_kit.lab.student import Student

    student = Student()
    with student.in_words():
        source = find_source(student, classifier, model)
        if mask is None:
            mask = "causal" if source.causal else "none"
        page = output is not None and output.suffix.lower() == ".html"
        # A page lets its reader choose; a picture of every layer would be too large.
        layers = range(source.layers) if page and layer is None else [layer or 0]
        picture = find_picture(source, written, MASKS["both" if page else mask], layers, head, values, vmax)
    view = view_picture(picture, mask)
    if output is None:
        _print([view])
        return
    view.save(output)
    for line in (*picture.warnings(), *picture.notes):
        click.echo(make_printable(line))
    click.echo(f"{output} is written")


@click.command()
@click.argument("data", metavar="[FILE]", required=False, type=FILE)
@click.option("--text", default="text", show_default=True, help="The column to read.")
@click.option("--label", default="label", show_default=True, help="The column to learn.")
@click.option("--layers", default=1, show_default=True, type=click.IntRange(1, 12), help="Blocks of attention.")
@click.option("--epochs", type=click.IntRange(1), help="[default: 40; of a language model 24]")
@click.option("--seed", default=0, show_default=True)
@click.option("-o", "--output", type=FILE, help="[default: classifier.safetensors, or language-model.safetensors]")
@click.option("--animate", metavar="GIF", type=FILE, help="Show how attention changes meanwhile.")
@click.pass_context
def train(
    ctx: click.Context,
    data: Path | None,
    text: str,
    label: str,
    layers: int,
    epochs: int | None,
    seed: int,
    output: Path | None,
    animate: Path | None,
) -> None:
    """Train a classifier, or a language model, on your own attention.

    FILE is a .csv or .tsv whose first line names the columns; without it, the kit's own sentences are taken. `cs336
    show --classifier` shows what the classifier looks at.

    Of a .md or .txt, or a folder of them, a language model of characters learns to write, on what you wrote for
    decoding. `cs336 generate` writes with it.
    """
    if data and (data.is_dir() or data.suffix in (".md", ".txt")):
        for name in ("text", "label", "layers", "animate"):
            if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
                raise BadInput(f"--{name} is for a table: leave it out, or give a .csv or .tsv in place of {data}")
        _train_language_model(data, epochs or 24, seed, output or Path("language-model.safetensors"))
        return
    epochs, output = epochs or 40, output or Path("classifier.safetensors")
    check_output(output, [".safetensors"])
    if animate:
        check_output(animate, [".gif"])
    from cs336_kit.lab.classifier import save_classifier
    from cs336_kit.lab.student import Student
    from cs336_kit.lab.training import OURS, make_classifier, read_labelled_texts

    split = read_labelled_texts(data or OURS, text, label, seed)
    click.secho(f"{len(split.train)} texts to learn from, {len(split.held_out)} held out", dim=True)
    student, watched = Student(), split.held_out[0].text
    with student.in_words():
        classifier = make_classifier(student.adapters.attention_classifier, split, layers, seed)
        frames = _train(classifier, split, epochs, watched)
    right = round(frames[-1][0] * len(split.held_out))
    frequent = max(sum(row.label == label for row in split.held_out) for label in split.labels)
    click.echo(
        f"Held-out accuracy {frames[-1][0]:.1%}: {right} of {len(split.held_out)} texts "
        f"(the most frequent label alone: {frequent / len(split.held_out):.1%})"
    )
    save_classifier(output, classifier)
    if animate:
        from cs336_kit.lab.figure import write_animation
        from cs336_kit.lab.show import find_picture

        with Console().status(f"Drawing {animate}"), student.in_words():
            picture = find_picture(classifier, watched, MASKS["none"], range(layers))
            write_animation(animate, picture, frames)
        click.echo(f"{animate} shows “{watched}”")
    click.echo(f"{output} is written")


def _train(classifier: "Classifier", split: "Split", epochs: int, watched: str) -> "list[Frame]":
    """Train with a progress bar; the attention in one text, before and after each epoch."""
    from cs336_kit.lab.training import train_classifier

    accuracies = train_classifier(classifier, split, epochs)
    with click.progressbar(accuracies, length=epochs + 1, item_show_func=lambda x: f"held-out {x or 0:.1%}") as bar:
        return [(accuracy, classifier.weights(watched)) for accuracy in bar]


def _train_language_model(data: Path, epochs: int, seed: int, output: Path) -> None:
    """Train with a progress bar, save the model, and say how well it foretells the next character."""
    check_output(output, [".safetensors"])
    from cs336_kit.examination.experiment import use_one_thread
    from cs336_kit.lab.language_model import save_language_model
    from cs336_kit.lab.student import Student
    from cs336_kit.lab.text_training import make_language_model, read_sentences, train_language_model

    text = read_sentences(data)
    click.secho(f"{len(text):,} characters to learn from, {len(set(text))} of them different", dim=True)
    student = Student()
    with student.in_words(), use_one_thread():
        model = make_language_model(student.adapters.run_decoding, text, seed)
        losses = train_language_model(model, text, epochs)
        with click.progressbar(losses, length=epochs, item_show_func=lambda x: f"loss {x or 0:.2f}") as bar:
            *_, last = bar
    save_language_model(output, model)
    click.echo(f"Loss {last:.2f} in the last epoch: a probability of {math.exp(-last):.0%} for the next character")
    click.echo(f"{output} is written; `uv run cs336 generate` writes with it")


@click.command()
@click.argument("prompt", default="Attention ")
@click.option("--length", default=300, show_default=True, type=click.IntRange(1), help="How many characters.")
@click.option("--seed", default=0, show_default=True)
@click.option("--model", default="language-model.safetensors", show_default=True, type=FILE)
def generate(prompt: str, length: int, seed: int, model: Path) -> None:
    """Write on from PROMPT with your own attention and its cache.

    The model is what `cs336 train FILE` makes of a text. It writes twice, with the cache and without, and says how much
    quicker the cache is. The exit status is 0 if both give the same logits, 1 if not.
    """
    from cs336_kit.lab.generation import describe_cache, find_difference, write, write_again
    from cs336_kit.lab.language_model import load_language_model
    from cs336_kit.lab.picture import make_printable
    from cs336_kit.lab.student import Student

    student = Student()
    with student.in_words():
        language_model = load_language_model(model, student.adapters.run_decoding)
        cached = write(language_model, prompt, length, seed)
        whole = write_again(language_model, cached)
    click.echo(make_printable(cached.text))
    click.echo()
    place = find_difference(cached, whole)
    click.echo(describe_cache(cached, whole, place))
    if place is not None:
        raise SystemExit(1)


def _print(parts: Iterable[RenderableType]) -> None:
    """Print each part as soon as it is known: what comes before an error of the student's is worth reading."""
    console = Console(highlight=False)
    for part in parts:
        console.print(part)
