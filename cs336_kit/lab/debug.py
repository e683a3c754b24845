"""`cs336 debug`: one call of attention, step by step."""

from pathlib import Path

import click
from rich.console import Console

from cs336_kit.engine.assignment import find_root
from cs336_kit.lab.bad_input import BadInput
from cs336_kit.lab.call import call_from_case, call_from_file
from cs336_kit.lab.report import print_report
from cs336_kit.lab.student import Student


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--case", metavar="NAME", help="A stored case of attention, such as attention/3d-causal.")
def debug(file: Path | None, case: str | None) -> None:
    """Report one call of attention, step by step, with what to do.

    FILE holds tensors named Q, K, V and, if there is one, mask:

    \b
    from safetensors.torch import save_file
    save_file({"Q": Q, "K": K, "V": V, "mask": mask}, "call.safetensors")
    """
    if (file is None) == (case is None):
        raise BadInput("give either FILE or --case NAME")

    root = find_root(Path.cwd())
    call = call_from_file(file) if file else call_from_case(root / "fixtures", case or "")
    print_report(call, Student(root), Console(highlight=False))
