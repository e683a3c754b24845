"""`check` and `hint`."""

import sys
from contextlib import suppress
from pathlib import Path

import click
from rich.console import Console

from whichline.checking.board import deduct, render, render_hints, score
from whichline.checking.runner import run_once
from whichline.engine.assignment import find_problem, find_root, load_problems, name_command

ALL = 100  # more explanations than one problem ever has


@click.command()
@click.argument("problem", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Show everything that was found, problem by problem.")
@click.option("--watch", is_flag=True, help="Show the board again after every save.")
@click.option("--spare", is_flag=True, help="With --watch: run each time in a warm process, not in a fork of one.")
def check(problem: tuple[str, ...], everything: bool, watch: bool, spare: bool) -> None:
    """Run the public tests of each PROBLEM (default: all) and print the board.

    The exit status is 0 if every test passed and every point will count, 1 if not. Without PROBLEM, bonus problems make
    no difference to it.
    """
    root = find_root(Path.cwd())
    problems = load_problems(root)
    chosen = [find_problem(problems, name) for name in dict.fromkeys(problem)] or list(problems.values())
    if watch:
        from whichline.checking.watch import watch as watch_saves  # slow to import

        with suppress(KeyboardInterrupt):
            watch_saves(root, [each.id for each in chosen], Console(), spare=spare or sys.platform != "linux")
        return
    if spare:
        raise click.ClickException("--spare needs --watch")
    console = Console()
    run = run_once(root, [each.id for each in chosen], console, ALL if everything else 1)
    scores = deduct(score(chosen, run.results_or_error(), run.explanations), run.notes.deducted)
    console.print(render(scores, run, root, whole=not problem, everything=everything))
    if run.looking:  # the search did not end, not a test
        click.echo(f"\n{run.current_test} did not end{run.line}: is there an endless loop in your code?")
    decisive = [each for each in scores if problem or not each.problem.bonus]
    sys.exit(run.status is None or any(each.first_failure or each.deducted for each in decisive))


@click.command()
@click.argument("problem", required=False)
@click.option("--step", default=1, show_default=True, help="Show the hints up to this one.")
def hint(problem: str | None, step: int) -> None:
    """Print the first hint for PROBLEM, a question; each further step says more.

    Without PROBLEM, run the public tests and help with the first problem that does not pass.
    """
    root = find_root(Path.cwd())
    problems = load_problems(root)
    console = Console()
    if problem:
        chosen = find_problem(problems, problem)
    else:
        scores = score(problems.values(), run_once(root, list(problems), console, most=0).results_or_error())
        chosen = next((each.problem for each in scores if each.first_failure), None)
        if chosen is None:
            click.echo(f"Every public test passes: there is nothing left to hint at. Now {name_command('submit')}")
            return
    if not chosen.hints:
        raise click.ClickException(f"{chosen.id} has no hints")
    if not 1 <= step <= len(chosen.hints):
        raise click.ClickException(f"{chosen.id} has hints 1 to {len(chosen.hints)}, not {step}")
    console.print(render_hints(chosen, step))
    if step < len(chosen.hints):
        console.print(f"{name_command(f'hint {chosen.id} --step {step + 1}')} says more", style="dim", highlight=False)
