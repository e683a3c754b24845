"""Questions to a submission: calls of its adapters, as the tests make them of a right program."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from whichline_grader.sandbox.inside.frames import elements, encode, extend, pack
from whichline_grader.sandbox.inside.randomness import Seeds

if TYPE_CHECKING:
    from hashlib import _Hash as Hash


class Earlier(NamedTuple):
    """In the place of an argument: an entry of what the answer to an earlier question of the same test holds."""

    question: int
    entry: int

    def find(self, values: Sequence[object]) -> object:
        """The entry; LookupError if the answer has none."""
        value = values[self.question]
        if not isinstance(value, list):
            raise LookupError(f"the answer to question {self.question} is not a list")
        return value[self.entry]


@dataclass(frozen=True, eq=False)
class Question:
    """One question.

    Args:
        call: the name of the adapter.
        arguments: plain values and tensors, which nobody changes, and `Earlier`.
        grad_enabled: whether torch computes gradients during the call.
        cotangents: one for each tensor of the answer, if the gradients are asked for too.
        memory: bytes of private memory that the call may map, if it has a process of its own for that.
        rehearsed: the arguments, with what a right program has answered in the place of `Earlier`.
        names: of the last arguments, which the test gives by name.
        seeds: of the random numbers that the call draws.
        right_bytes: of the numbers in the right answer.
    """

    call: str
    arguments: tuple[object, ...]
    grad_enabled: bool = True
    cotangents: tuple[Tensor | None, ...] | None = None
    memory: int | None = None
    rehearsed: tuple[object, ...] = ()
    names: tuple[str, ...] = ()
    seeds: Seeds = (0, 0, 0)
    right_bytes: int = 0

    def fill_in(self, values: Sequence[object]) -> list[object]:
        """The arguments, with what the answers before this one hold; LookupError if one of them lacks it."""
        return [each.find(values) if isinstance(each, Earlier) else each for each in self.arguments]

    def is_asked_by(self, call: "Question", values: Sequence[object]) -> bool:
        """Tell whether a call is this question, bit for bit, after answers with these `values`."""
        if (call.call, len(call.arguments), call.names) != (self.call, len(self.arguments), self.names):
            return False
        try:
            # What was handed back is known by being the same object: a submission chose what is in it.
            said = [
                mine if isinstance(mine, Earlier) and mine.find(values) is theirs else theirs
                for mine, theirs in zip(self.arguments, call.arguments, strict=True)
            ]
        except LookupError:
            return False
        return _identify(said) == self.identity

    def is_same(self, other: "Question") -> bool:
        return self is other or (self.call, self.names, *self.identity) == (other.call, other.names, *other.identity)

    def has_cotangents(self, cotangents: Sequence[Tensor | None]) -> bool:
        """Tell whether these gradients are what is asked for."""
        return self.cotangents is not None and _identify(cotangents) == self._identity_of_cotangents

    def hash_into(self, digest: "Hash") -> None:
        """Add all that it asks to a hash."""
        digest.update(repr((self.call, self.names, self.seeds, self.grad_enabled, self.memory)).encode())
        for text, *tensors in (self.identity, self._identity_of_cotangents):
            digest.update(str(text).encode())
            for *about, data in tensors:
                digest.update(repr(about).encode() + data)

    def frame(self, arguments: Sequence[object], **more: object) -> tuple[bytes, list[Tensor]]:
        """The bytes that ask it with these arguments and say something more, and the tensors among the arguments."""
        is_own = all(mine is each for mine, each in zip(self.arguments, arguments, strict=True))
        frame, tensors = self.packed if is_own else self._pack(arguments)
        return extend(frame, more), tensors

    @cached_property
    def packed(self) -> tuple[bytes, list[Tensor]]:
        """The bytes that ask it, where nothing in it comes from an earlier answer, and the tensors in it."""
        return self._pack(self.arguments)

    def _pack(self, arguments: Sequence[object]) -> tuple[bytes, list[Tensor]]:
        tensors: list[Tensor] = []
        header: dict[str, Any] = {
            "call": self.call,
            "arguments": [encode(each, tensors) for each in arguments],
            "names": self.names,
            "seeds": self.seeds,
            "grad_enabled": self.grad_enabled,
        }
        header["given"] = len(tensors)
        sent = list(tensors)  # and after them the cotangents
        if self.cotangents is not None:
            header["cotangents"] = [encode(each, sent) for each in self.cotangents]
        return pack(header, sent), tensors

    @cached_property
    def identity(self) -> tuple[Any, ...]:
        return _identify(self.arguments)

    @cached_property
    def _identity_of_cotangents(self) -> tuple[Any, ...]:
        return _identify(self.cotangents or ())


def _identify(values: Sequence[object]) -> tuple[Any, ...]:
    """All that a worker can tell of some values; 1, 1.0 and True differ."""
    tensors: list[Tensor] = []
    plain = [each if isinstance(each, Earlier) else encode(each, tensors) for each in values]
    return repr(plain), *((x.shape, x.dtype, x.stride(), x.requires_grad, elements(x)) for x in tensors)
