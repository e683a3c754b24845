"""The commands under `cs336 staff`. Each is imported when it runs."""

import click

from cs336_kit.cli import Commands


@click.group(
    cls=Commands,
    lazy={
        "adjust": ("cs336_staff.grading.regrade:adjust", "Add points, or take some, after a regrade request."),
        "comment": ("cs336_staff.grading.regrade:comment", "Tell one student something; no points change."),
        "diff": ("cs336_staff.grading.regrade:diff", "Say whose grade changed, and why."),
        "feedback": ("cs336_staff.grading.regrade:feedback", "Write one student's feedback again, and print it."),
        "findings": ("cs336_staff.grading.commands:findings", "Count what was found in a class."),
        "fixtures": ("cs336_staff.release.commands:fixtures", "Write the stored cases, or check them."),
        "grade": ("cs336_staff.grading.commands:grade", "Grade submissions in a sandbox."),
        "gradescope": ("cs336_staff.release.commands:gradescope", "Write the autograder that Gradescope runs."),
        "handout": ("cs336_staff.release.commands:handout", "Write what students receive, and try it."),
        "new-course": (
            "cs336_staff.release.new_course:new_course",
            "Make the folder of what a course keeps to itself.",
        ),
        "overrule": ("cs336_staff.grading.regrade:overrule", "Clear a false positive of the rules."),
        "report": ("cs336_staff.grading.pages:report", "Write pages: one of the class, one for each student."),
        "reproduce": ("cs336_staff.grading.commands:reproduce", "Run one test of one submission again."),
        "rescore": ("cs336_staff.grading.regrade:rescore", "Score recorded results with other weights."),
        "verify": ("cs336_staff.release.commands:verify", "Test the suites before a release."),
        "who": ("cs336_staff.grading.regrade:who", "Say who lost points on a test, and why."),
    },
)
def staff() -> None:
    """Fixtures, grading and the handout: for staff."""
