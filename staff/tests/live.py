"""A submission that answers a call when it is made, and not before."""

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from staff.tests import ROOT
from whichline.rules.watch import Use
from whichline_grader.grading.transcripts import Replayer, find_source
from whichline_grader.sandbox.confinement import Sandbox
from whichline_grader.sandbox.interview import Interview
from whichline_grader.sandbox.limits import Limits
from whichline_grader.sandbox.proxy import Adapters
from whichline_grader.sandbox.remote_call import RemoteCall
from whichline_grader.sandbox.reply import Reply
from whichline_grader.sandbox.submission import Submission


class Live(Replayer):
    """Asks what is called, and gives the answers."""

    def __init__(self, interview: Interview) -> None:
        self._mine: list[RemoteCall] = []
        self._theirs: list[Reply] = []
        super().__init__({"": self._mine}, {"": self._theirs}, interview.submission)
        self.interview = interview
        self.memory: int | None = None  # of the calls that are made from now on, in bytes

    def reply(self, call: RemoteCall) -> Reply:
        number = len(self.values)
        self._mine[number:] = [replace(call, memory=self.memory)]
        self._theirs[number:] = [self.interview.ask(self._mine[number])]
        return super().reply(call)

    def differentiate(self, number: int, cotangents: Sequence[Tensor | None]) -> list[Tensor | None]:
        self._mine[number] = replace(self._mine[number], cotangents=tuple(cotangents))
        self._theirs[number] = self.interview.ask(self._mine[number])
        return super().differentiate(number, cotangents)

    @property
    def answers(self) -> list[Reply]:
        """Those to all calls that are not made again, and to the import."""
        return [*([self.interview.imported] if self.interview.imported else []), *self._theirs]

    @property
    def printed(self) -> tuple[str, str]:
        out, err = zip(*(answer.printed for answer in self.answers), strict=True)
        return "".join(out), "".join(err)

    @property
    def missing(self) -> set[str]:
        return {name for answer in self.answers for name in answer.missing}

    @property
    def forbidden(self) -> set[Use]:
        uses = (use for answer in self.answers for use in answer.forbidden)
        return {replace(use, source=find_source(self.interview.submission, use)) for use in uses}


def connect(sandbox: Sandbox, submission: Submission, limits: Limits | None = None) -> Adapters:
    """The proxy module of a submission that is asked as soon as a function is called."""
    adapters = Adapters(ROOT / "adapters.py")
    adapters.respondent = Live(Interview(sandbox, submission, limits))
    return adapters
