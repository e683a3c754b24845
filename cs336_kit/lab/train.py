"""`cs336 train`: a classifier of texts, trained on the student's own attention."""

from pathlib import Path
from typing import TYPE_CHECKING

import click
import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from cs336_kit.engine.assignment import find_root
from cs336_kit.lab.bad_input import BadInput
from cs336_kit.lab.classifier_file import SUFFIX, Classifier, save_classifier, words
from cs336_kit.lab.labelled_texts import OURS, Split, read_labelled_texts
from cs336_kit.lab.output_file import check_output
from cs336_kit.lab.student import Student
from cs336_kit.lab.training import new_classifier
from cs336_kit.lab.training import train as train_classifier

if TYPE_CHECKING:
    from cs336_kit.lab.animation import Frame  # which imports matplotlib

FILE = click.Path(path_type=Path)


@click.command()
@click.argument("data", metavar="[FILE]", required=False, type=FILE)
@click.option("--text", default="text", show_default=True, help="The column to read.")
@click.option("--label", default="label", show_default=True, help="The column to learn.")
@click.option("--epochs", default=40, show_default=True, type=click.IntRange(1))
@click.option("--seed", default=0, show_default=True)
@click.option("-o", "--output", default="classifier.safetensors", show_default=True, type=FILE)
@click.option("--animate", metavar="GIF", type=FILE, help="Show how attention changes meanwhile.")
@click.option("--sentence", help="With --animate: in which text.  [default: a held-out one]")
def train(
    data: Path | None,
    text: str,
    label: str,
    epochs: int,
    seed: int,
    output: Path,
    animate: Path | None,
    sentence: str | None,
) -> None:
    """Train a classifier of texts on your own attention.

    FILE is a .csv or .tsv whose first line names the columns; without it, the kit's own sentences are taken. `cs336
    show --classifier` shows what the classifier looks at.
    """
    check_output(output, [SUFFIX])
    if animate:
        check_output(animate, [".gif"])
    if sentence is not None and not animate:
        raise BadInput("--sentence goes with --animate")
    split = read_labelled_texts(data or OURS, text, label, seed)
    watched = split.held_out[0].text if sentence is None else sentence
    if not words(watched):
        raise BadInput("the sentence has no word; write one")

    console = Console(highlight=False)
    console.print(f"{len(split.train)} texts to learn from, {len(split.held_out)} held out", style="dim")
    student = Student(find_root(Path.cwd()))
    with student.in_words():
        classifier = new_classifier(student.adapters.attention_classifier, split, seed)
        frames = _train(classifier, split, epochs, watched, console)
    save_classifier(output, classifier)
    if animate:
        from cs336_kit.lab.animation import write_animation

        with console.status(f"Drawing {animate}"):
            write_animation(animate, words(watched), frames)
        click.echo(f"{animate} shows “{watched}”")
    click.echo(f"{output} is written")


def _train(classifier: Classifier, split: Split, epochs: int, watched: str, console: Console) -> list["Frame"]:
    """Train with a progress bar; the attention in one text, before and after each epoch."""
    frames: list[Frame] = []
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("", total=epochs)
        for progress in train_classifier(classifier, split, epochs):
            bar.update(
                task,
                completed=progress.epoch,
                description=f"epoch {progress.epoch} of {epochs}, held-out accuracy {progress.accuracy:.1%}",
            )
            with torch.no_grad():
                weights = classifier.module.attention_weights(*classifier.encode([watched]))[0]
            frames.append((progress, weights))
    accuracy = frames[-1][0].accuracy
    right = round(accuracy * len(split.held_out))
    frequent = max(sum(row.label == label for row in split.held_out) for label in split.labels)
    click.echo(
        f"Held-out accuracy {accuracy:.1%}: {right} of {len(split.held_out)} texts "
        f"(the most frequent label alone: {frequent / len(split.held_out):.1%})"
    )
    return frames
