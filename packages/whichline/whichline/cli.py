"""The command of an assignment. Each command is imported when it runs, so that `--help` is instant."""

import whichline.required  # noqa: F401 (it ends a process that lacks packages)

# isort: split
import atexit
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import cached_property
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

import click

from whichline.checking.plain_text import print_everywhere
from whichline.engine.assignment import get_assignment, put_root_on_path
from whichline.engine.errors import CourseworkError
from whichline.engine.kit import check_kit, read_version
from whichline.engine.toml_file import AssignmentError
from whichline.quick_end import end_quickly


class Commands(click.Group):
    """Commands by name, each with its place, "module:function", and a few words about it; `daily` ones come first."""

    def __init__(
        self,
        *,
        lazy: Mapping[str, tuple[str, str]],
        daily: Sequence[str] = (),
        more: Callable[[], Mapping[str, tuple[str, str]]] = dict,
        **attributes,
    ) -> None:
        super().__init__(**attributes)
        self._lazy, self._more = lazy, more
        self.daily = daily

    @cached_property
    def lazy(self) -> Mapping[str, tuple[str, str]]:
        """All commands."""
        return {**self._lazy, **self._more()}

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
        except BrokenPipeError:  # nobody reads the output any more; click handles it
            raise
        except OSError as error:  # about a file or a disk of the user's
            raise click.ClickException(f"{error.filename or ctx.info_name}: {error.strerror or error}") from None


def _list_more() -> dict[str, tuple[str, str]]:
    """The groups of commands that other packages register, and the assignment's own commands."""
    found = entry_points(group="whichline.commands")
    more = {each.name: (each.value, f"Commands for {each.name}.") for each in found}
    with suppress(AssignmentError):  # a command that needs the assignment reports it
        own = get_assignment().commands
        put_root_on_path()
        more |= {each.name: (each.function, each.help) for each in own}
    return more


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        packages = ["whichline"]
        with suppress(AssignmentError):  # the command also works outside of an assignment
            packages.insert(0, get_assignment().package)
        try:
            click.echo(", ".join(f"{package} {read_version(package)}" for package in packages))
        except CourseworkError as error:
            raise click.ClickException(str(error)) from None
        context.exit()


@click.group(
    cls=Commands,
    lazy={
        "check": ("whichline.checking.commands:check", "Run the public tests and show the board."),
        "debug": ("whichline.lab.commands:debug", "Mark each line of your code that one call runs."),
        "hint": ("whichline.checking.commands:hint", "Show a hint for a problem."),
        "reset": ("whichline.submission.commands:reset", "Begin a problem again; what you wrote is kept."),
        "submit": ("whichline.submission.commands:submit", "Pack what you hand in."),
        "update": ("whichline.submission.commands:update", "Take in an update of the course's files."),
    },
    more=_list_more,
    daily=("check", "hint", "debug", "submit"),
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version, and that of the assignment.",
)
@click.pass_context
def main(ctx: click.Context) -> None:
    """The assignment: check your work, look into it, and hand it in."""
    print_everywhere()
    atexit.register(end_quickly)
    if ctx.invoked_subcommand != "update":
        check_kit(Path.cwd())
