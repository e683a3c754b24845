"""How often a mistake that the diagnosis names is the one that was made, on programs that it was not built from.

    uv run python -m cs336_staff.tools.benchmarks.precision FOLDER

The folder holds one Python file for each wrong submission: a docstring that says what is wrong, and the `run_*`
functions that are; the others are right. `expected.toml` there says, for each file, which ids of the catalogue describe
its docstring (several where two mean the same, none where the mistake is not in the catalogue):

    late-mask = ["attention-mask-after-softmax"]
    new-idea = []
"""

import tomllib
from collections.abc import Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from cs336_kit.engine.assignment import find_root
from cs336_staff.authoring.misconceptions import CATALOGUE
from cs336_staff.authoring.misconceptions.parts import Adapter
from cs336_staff.authoring.rehearsal import rehearse
from cs336_staff.authoring.right_styles import CORRECT
from cs336_staff.tools.benchmarks.plain_suite import failed_tests

NAMED = ("right", "right among others", "wrong")


def load(path: Path) -> tuple[str, Mapping[str, Adapter]]:
    """What the docstring of a wrong submission says, and its adapters with right ones for the rest.

    Raises:
        click.ClickException: the file has no docstring, or overrides no adapter.
    """
    spec = spec_from_file_location(path.stem.replace("-", "_"), path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    right = CORRECT["einsum"]
    overridden = {name: getattr(module, name) for name in right if hasattr(module, name)}
    if not module.__doc__ or not overridden:
        raise click.ClickException(f"{path} should have a docstring and at least one of {', '.join(right)}")
    return " ".join(module.__doc__.split()), {**right, **overridden}


def load_expected(folder: Path, names: set[str]) -> dict[str, list[str]]:
    """The ids that describe each submission.

    Raises:
        click.ClickException: a submission is missing or unknown, or an id is.
    """
    expected = tomllib.loads((folder / "expected.toml").read_text(encoding="utf-8"))
    if odd := sorted(expected.keys() ^ names):
        raise click.ClickException(f"expected.toml and the files of {folder} differ in {', '.join(odd)}")
    if unknown := sorted({id for ids in expected.values() for id in ids} - CATALOGUE.keys()):
        raise click.ClickException(f"expected.toml names {', '.join(unknown)}, which the catalogue does not have")
    return expected


def judge(expected: set[str], named: set[str]) -> str:
    """What the names are worth: right, wrong, or missing, and whether a name was to be had at all."""
    if not named:
        return "not named" if expected else "rightly not named"
    if named <= expected:
        return "right"
    return "right among others" if named & expected else "wrong"


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
def main(folder: Path) -> None:
    """Print the confusion table of the wrong submissions in FOLDER."""
    root = find_root(Path.cwd())
    files = sorted(folder.glob("*.py"))
    expected = load_expected(folder, {file.stem for file in files})
    table = Table("submission", "described as", "fail", "expected", "named", "verdict", "plain suite")
    verdicts: list[str] = []
    caught = plain = 0
    for file in files:
        description, adapters = load(file)
        rehearsal = rehearse(root, adapters)
        failed = failed_tests(adapters)
        caught += bool(rehearsal.failures)
        plain += bool(failed)
        verdicts.append(judge(set(expected[file.stem]), rehearsal.named))
        names = (", ".join(expected[file.stem]), ", ".join(sorted(rehearsal.named)))
        table.add_row(file.stem, description, str(len(rehearsal.failures)), *names, verdicts[-1], ", ".join(failed))
    console = Console()
    console.print(table)
    named = [verdict for verdict in verdicts if "not named" not in verdict]
    known = sum(bool(ids) for ids in expected.values())
    console.print(f"{len(files)} submissions: {caught} caught, {plain} by the plain suite")
    console.print(f"{len(named)} named: {', '.join(f'{named.count(each)} {each}' for each in NAMED)}")
    console.print(f"{known} are in the catalogue, {verdicts.count('not named')} of them not named")


if __name__ == "__main__":
    main()
