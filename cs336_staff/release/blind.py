"""Print what students would read of wrong programs that the examination was not made from.

    uv run python -m cs336_staff.release.blind cs336_staff/tests/blind/second

The folder holds one Python file for each wrong program: a docstring that says what is wrong, and the `run_*` functions
that are; the others are right. `expected.toml` there says what a tutor would tell the student. Whether what is found
says the same, a person must judge: this prints the two side by side.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import click

from cs336_kit.engine.assignment import find_root
from cs336_kit.examination.problems import explain
from cs336_staff.authoring.parts import Adapter
from cs336_staff.authoring.right_styles import RIGHT_STYLES
from cs336_staff.release.verify import both_suites, run_suite


def load(path: Path) -> Mapping[str, Adapter]:
    """The adapters of a wrong program, with right ones for those that it does not define.

    Raises:
        click.ClickException: it defines none.
    """
    spec = spec_from_file_location(path.stem.replace("-", "_"), path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    right = RIGHT_STYLES["einsum"]
    own = {name: getattr(module, name) for name in right if hasattr(module, name)}
    if not own:
        raise click.ClickException(f"{path} should define at least one of {', '.join(right)}")
    return {**right, **own}


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--only", default="", help="Programs whose names begin like this.")
def blind(folder: Path, only: str) -> None:
    """Print, for each wrong program in FOLDER, what a tutor would say and what the examination finds."""
    whole = both_suites(find_root(Path.cwd()))
    suite = replace(whole, tests=[test for test in whole.tests if not test.hidden])
    expected = tomllib.loads((folder / "expected.toml").read_text(encoding="utf-8"))
    caught = told = 0
    for path in sorted(folder.glob(f"{only}*.py")):
        results = run_suite(suite, load(path))
        failed = sum(not result.passed for result in results)
        explanations = explain(suite, results)
        caught, told = caught + bool(failed), told + bool(explanations)
        click.secho(f"\n{path.stem}: {failed} tests fail", bold=True)
        for sentence in expected[path.stem]:
            click.echo(f"  tutor: {sentence}")
        for explanation in explanations:
            click.secho(f"  {explanation.id} ({explanation.problem})", fg="cyan")
            for line in explanation.lines:
                click.echo(f"    {line}")
    click.echo(f"\n{len(expected)} programs: {caught} fail a public test, {told} are told something")


if __name__ == "__main__":
    blind()
