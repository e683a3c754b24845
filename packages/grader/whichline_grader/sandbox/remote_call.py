"""Questions to a submission: the calls that the tests make, recorded with a right program."""

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
    """Stands for an argument: an entry of the list that an earlier question of the same test was answered with."""

    remote_call: int
    entry: int

    def find(self, values: Sequence[object]) -> object:
        """Look the entry up; raises LookupError if the answer lacks it."""
        if not isinstance(value := values[self.remote_call], list):
            raise LookupError(f"the answer to question {self.remote_call} is not a list")
        return value[self.entry]


@dataclass(frozen=True, eq=False)
class RemoteCall:
    """One question."""

    call: str  # the name of the adapter
    arguments: tuple[object, ...]  # plain values, tensors that nobody changes, and `Earlier`
    grad_enabled: bool = True  # whether torch computes gradients during the call
    cotangents: tuple[Tensor | None, ...] | None = None  # of each tensor of the answer, if it asks for gradients too
    memory: int | None = None  # bytes of private memory that the call may map, in a worker of its own
    recorded: tuple[object, ...] = ()  # the arguments, with a right program's answers instead of `Earlier`
    names: tuple[str, ...] = ()  # of the last arguments, which the test passes by name
    seeds: Seeds = (0, 0, 0)  # for the random numbers that the call draws
    right_bytes: int = 0  # the size of the right answer's tensors

    def fill_in(self, values: Sequence[object]) -> list[object]:
        """Replace each `Earlier` by its value; raises LookupError if an answer lacks it."""
        return [each.find(values) if isinstance(each, Earlier) else each for each in self.arguments]

    def is_asked_by(self, call: "RemoteCall", values: Sequence[object]) -> bool:
        """Tell whether a call equals this question, bit for bit, given the `values` of earlier answers."""
        if (call.call, len(call.arguments), call.names) != (self.call, len(self.arguments), self.names):
            return False
        try:
            # Values that were handed back are compared by identity: the submission chose their contents.
            pairs = zip(self.arguments, call.arguments, strict=True)
            arguments = [own if isinstance(own, Earlier) and own.find(values) is each else each for own, each in pairs]
        except LookupError:
            return False
        return _identify(arguments) == self.identity

    def is_same(self, other: "RemoteCall") -> bool:
        return self is other or (self.call, self.names, *self.identity) == (other.call, other.names, *other.identity)

    def has_cotangents(self, cotangents: Sequence[Tensor | None]) -> bool:
        """Tell whether the question asks for the gradients of these cotangents."""
        return self.cotangents is not None and _identify(cotangents) == self._identity_of_cotangents

    def hash_into(self, digest: "Hash") -> None:
        digest.update(repr((self.call, self.names, self.seeds, self.grad_enabled, self.memory)).encode())
        for text, *tensors in (self.identity, self._identity_of_cotangents):
            digest.update(str(text).encode())
            for *about, data in tensors:
                digest.update(repr(about).encode() + data)

    def frame(self, arguments: Sequence[object], **more: object) -> tuple[bytes, list[Tensor]]:
        """Pack the question with these arguments and more fields; return the frame and the arguments' tensors."""
        is_own = all(mine is each for mine, each in zip(self.arguments, arguments, strict=True))
        frame, tensors = self.packed if is_own else self._pack(arguments)
        return extend(frame, more), tensors

    @cached_property
    def packed(self) -> tuple[bytes, list[Tensor]]:
        """The frame for the arguments as they stand, and their tensors."""
        return self._pack(self.arguments)

    def _pack(self, arguments: Sequence[object]) -> tuple[bytes, list[Tensor]]:
        tensors: list[Tensor] = []
        header: dict[str, Any] = {"call": self.call, "arguments": [encode(each, tensors) for each in arguments]}
        header |= {"names": self.names, "seeds": self.seeds, "grad_enabled": self.grad_enabled}
        header["given"] = len(tensors)
        sent = list(tensors)  # the cotangents follow
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
    """Reduce values to what a worker can tell apart; 1, 1.0 and True differ."""
    tensors: list[Tensor] = []
    plain = [each if isinstance(each, Earlier) else encode(each, tensors) for each in values]
    return repr(plain), *((x.shape, x.dtype, x.stride(), x.requires_grad, elements(x)) for x in tensors)
