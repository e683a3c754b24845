"""The `cs336` command. Each command is imported when it runs, so that `--help` is instant."""

import atexit
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

import click

from cs336_kit.checking.plain_text import print_everywhere
from cs336_kit.engine.errors import CourseworkError
from cs336_kit.engine.kit import check_kit
from cs336_kit.quick_end import end_quickly


class Commands(click.Group):
    """Commands by name, each with its place, "module:function", and a few words about it; the `daily` ones first."""

    def __init__(self, *, lazy: Mapping[str, tuple[str, str]], daily: Sequence[str] = (), **attributes) -> None:
        super().__init__(**attributes)
        self.lazy = lazy
        self.daily = daily

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.lazy:
            return None
        module, _, function = self.lazy[cmd_name][0].partition(":")
        return getattr(import_module(module), function)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.lazy and (near := get_close_matches(args[0], self.lazy, 1)):
            ctx.fail(f"No command is called {args[0]}: is it {near[0]}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        daily = [name for name in self.daily if name in self.lazy]  # a course may take commands away
        others = [name for name in self.list_commands(ctx) if name not in daily]
        for title, names in (("Every day", daily), ("Now and then" if self.daily else "Commands", others)):
            if names:
                with formatter.section(title):
                    formatter.write_dl([(name, self.lazy[name][1]) for name in names])

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except CourseworkError as error:
            raise click.ClickException(str(error)) from None
        except BrokenPipeError:  # click's: whoever read the output has gone
            raise
        except OSError as error:  # a file or a disk of the user's
            raise click.ClickException(f"{error.filename or ctx.info_name}: {error.strerror or error}") from None


def _registered() -> dict[str, tuple[str, str]]:
    """Groups of commands that other packages register as entry points."""
    found = entry_points(group="cs336.commands")
    return {each.name: (each.value, f"Commands for {each.name}.") for each in found}


@click.group(
    cls=Commands,
    lazy={
        "bench": ("cs336_kit.lab.commands:bench", "Measure time and memory of your attention."),
        "check": ("cs336_kit.checking.commands:check", "Run the public tests and show the board."),
        "compare": ("cs336_kit.lab.commands:compare", "Compare your attention with PyTorch's."),
        "debug": ("cs336_kit.lab.commands:debug", "Mark each line of your code that one call runs."),
        "hint": ("cs336_kit.checking.commands:hint", "Show a hint for a problem."),
        "show": ("cs336_kit.lab.commands:show", "Draw the weights of your attention."),
        "submit": ("cs336_kit.handing_in.commands:submit", "Pack what you hand in."),
        "update": ("cs336_kit.handing_in.commands:update", "Take in an update of the course's files."),
        **_registered(),
    },
    daily=("check", "hint", "debug", "submit"),
)
@click.version_option(package_name="cs336_basics")
@click.pass_context
def cs336(ctx: click.Context) -> None:
    """The assignment: check your work, look into it, and hand it in."""
    print_everywhere()
    atexit.register(end_quickly)
    if ctx.invoked_subcommand != "update":
        check_kit(Path.cwd())
