"""The commands under `staff`. Each is imported when it runs."""

from typing import Any

import click

from whichline.cli import Commands

GONE = {
    "comment": "`adjust STUDENT --because TEXT` tells a student something",
    "diff": "`rescore --against OLD` says whose grade changed",
    "feedback": "`rescore` writes feedback.md again, and `report` a page for each student",
    "findings": "`grade` and `rescore` write findings.csv",
    "fixtures": "`verify --write` writes the stored cases, and `verify` recomputes them",
    "overrule": "`adjust STUDENT [PROBLEM] --waive --because TEXT` counts what violates the rules",
}


class Staff(Commands):
    """The commands of staff; one that is gone says what takes its place."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args[0] in GONE:
            raise click.UsageError(f"`{args[0]}` is gone: {GONE[args[0]]}.", ctx)
        return super().resolve_command(ctx, args)


@click.group(
    cls=Staff,
    lazy={
        "adjust": ("whichline_grader.grading.regrade:adjust", "Tell a student something, or change points."),
        "grade": ("whichline_grader.grading.commands:grade", "Grade submissions in a sandbox."),
        "gradescope": ("whichline_grader.release.commands:gradescope", "Write the autograder that Gradescope runs."),
        "handout": ("whichline_grader.release.commands:handout", "Write what students receive, and try it."),
        "new-assignment": ("whichline_grader.release.new_assignment:new_assignment", "Write an assignment that runs."),
        "new-course": (
            "whichline_grader.release.new_course:new_course",
            "Make the folder that a course keeps to itself.",
        ),
        "report": ("whichline_grader.grading.pages:report", "Write pages: one of the class, one for each student."),
        "reproduce": ("whichline_grader.grading.commands:reproduce", "Run one test of one submission again."),
        "rescore": ("whichline_grader.grading.regrade:rescore", "Score recorded results again, and compare."),
        "verify": ("whichline_grader.release.verify:verify", "Test the suites, or write their cases."),
        "who": ("whichline_grader.grading.regrade:who", "Say who lost points on a test, and why."),
    },
)
def staff() -> None:
    """Fixtures, grading and the handout: for staff."""
