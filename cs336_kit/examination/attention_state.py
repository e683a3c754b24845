"""The student's attention, as the experiments ask it: for its weights, with what was found already put right.

With the identity for V the answer is the weights. Their logarithm is the scores up to one number for each slice that
the softmax normalises, so that a fit against Q Kᵀ gives the factor in front of it, and what a mask adds to a score.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from cs336_kit.engine.case import Case
from cs336_kit.examination.attention_calls import Call
from cs336_kit.examination.experiment import Ask, Finding, NoAnswerError, near

finding = partial(Finding, section="3 Attention")
Pointwise = Callable[[Tensor], Tensor] | None
# The axes that a softmax may run over by mistake; (-2, -1) are queries and keys together.
AXES = {"keys": (-1,), "queries": (-2,), "heads": (-3,), "batch": (0,), "queries and keys together": (-2, -1)}
SEEDS = 8  # calls of a function that drops weights at random, until each weight was kept once
NOTHING = 1e-30  # smaller weights are 0: float32 has no more digits for them


def touches_batch(case: Case) -> bool:
    return case.Q.ndim > 2


def touches_scores(case: Case) -> bool:
    """Say whether there is more than one key to choose from."""
    return case.K.shape[-2] > 1


@dataclass
class Attention:
    """The student's function, and what has been found out about it.

    Args:
        ask: asks it.
        usual: a call that works.
        failed: the variations of that call which do not.
        dropped: the share of its weights that it drops at random.
        order: which of Q, K and V it must be given in which place.
        averages: its answer averages something: it is 0 where V is 0.
        averages_keys: its answer is an average of the keys.
        free: the mask that hides nothing is this throughout; None for no mask.
        pointwise: what makes the score of a weight that is made of its score alone.
        normalised: the weights of a slice sum to 1.
        axis: those over which the weights of three-dimensional inputs are normalised.
        product: what its scores are a multiple of; None while that is not known.
        scored: `product` is Q Kᵀ, or nearly: its scores can be chosen.
        read_as: what the mask must be turned into to be understood.
        hides: the mask hides keys, before the softmax.
        added: what is left of hidden scores, "fill" or "bias", or nothing.
    """

    ask: Ask
    usual: Call
    failed: set[str]
    dropped: float = 0.0
    order: tuple[int, int, int] = (0, 1, 2)
    averages: bool = True
    averages_keys: bool = False
    free: bool | None = None
    pointwise: Pointwise = None
    normalised: bool = True
    axis: tuple[int, ...] = (-1,)
    product: Callable[[Tensor, Tensor], Tensor] | None = None
    scored: bool = False
    read_as: Callable[[Tensor], Tensor] | None = None
    hides: bool = True
    added: str = ""

    def fit(self, sample: "Sample", axis: tuple[int, ...] | None = None) -> tuple[float, float]:
        """The factor in front of `product`, and how far the scores are from being that (0 to 1).

        Raises:
            NoAnswerError: the scores are not understood.
        """
        return sample.fit(self.products(sample), axis or self.divided_along)

    @property
    def divided_along(self) -> tuple[int, ...] | None:
        """The axis of the divisors, where the sums do not show it."""
        return None if self.normalised else self.axis

    def products(self, sample: "Sample") -> Tensor:
        if self.product is None:
            raise NoAnswerError("what the scores are is not known")
        return self.product(sample.Q.double(), sample.K.double()).expand_as(sample.weights)

    def call(self, batch: tuple[int, ...] = (2,), queries: int = 5, keys: int = 4, d_k: int = 7, d_v: int = 6) -> Call:
        """These sizes, or the nearest that the function can take."""
        if len(batch) > 1 and "4d" in self.failed:
            batch = (3,)
        if "other-keys" in self.failed:
            queries = keys
        if "other-d_v" in self.failed:
            d_v = d_k
        return Call(batch, queries, keys, d_k, d_v)

    def answer(self, Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
        """Give the answer that the function would give without the mistakes found; without a mask nothing is hidden.

        Raises:
            NoAnswerError: it raised, or its answer has another shape.
        """
        if mask is not None:
            return self.raw(Q, K, V, self.read_as(mask) if self.read_as else mask)
        if self.free is not None:
            with suppress(NoAnswerError):
                return self.raw(Q, K, V, torch.full((Q.shape[-2], K.shape[-2]), self.free))
        return self.raw(Q, K, V, None)

    def raw(self, Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
        """Give the function's answer with this mask, whatever it takes the mask for."""
        if self.usual.batch or Q.ndim == 2:
            return self._ask(Q, K, V, mask)
        masks = [mask] * len(Q) if mask is None or mask.ndim == 2 else mask.expand(len(Q), -1, -1)
        return torch.stack([self._ask(*each) for each in zip(Q, K, V, masks, strict=True)])

    def find_free(self) -> None:
        """Find what hides nothing: a mask that is all True, no mask, or one that is all False where it is inverted.

        Weights that are all the same may be those of a row that is hidden throughout.
        """
        alike = []
        for self.free in (True, None, False):
            with suppress(NoAnswerError):
                weights = self.square().weights
                if weights.isfinite().all() and weights.any(-1).all():
                    if not near(weights, weights.mean()):
                        return
                    alike.append(self.free)
        self.free = alike[0] if alike else None

    def weights(self, Q: Tensor, K: Tensor, mask: Tensor | None = None, d_v: int | None = None) -> Tensor:
        """(..., queries, keys); `d_v` may be larger than the number of keys, to tell the two apart."""
        if not self.averages:
            raise NoAnswerError("there are no weights to speak of")
        keys = K.shape[-2]
        V = torch.eye(keys, d_v or keys, dtype=K.dtype).expand(*K.shape[:-2], -1, -1)
        several = []
        for seed in range(SEEDS if self.dropped else 1):
            self.ask.seed = seed
            several.append(self.answer(Q, K, V, mask)[..., :keys])
        return torch.stack(several).amax(0) * (1 - self.dropped)

    @property
    def corrected(self) -> bool:
        """Say whether a mistake was found that later calls correct."""
        return self.order != (0, 1, 2) or self.averages_keys or self.read_as is not None

    def sample(self, call: Call, dtype: torch.dtype = torch.float32) -> "Sample":
        Q, K, _ = (x.to(dtype) for x in call.tensors())
        if self.averages_keys:
            call = replace(call, d_k=call.d_k + call.d_v)  # as `_ask` calls it
        return Sample(call, Q, K, self.weights(Q, K, d_v=call.d_v), self.pointwise)

    def samples(self) -> list["Sample"]:
        """With three and with four dimensions, of sizes that are all different."""
        return [self.sample(self.call()), self.sample(self.call((3, 2), 4, 5, 10, 9))]

    def square(self, mask: Tensor | None = None) -> "Sample":
        """With four queries, four keys and d_k = 4 in two sequences."""
        call = Call((2,), 4, 4, 4, 4)
        Q, K, _ = call.tensors()
        return Sample(call, Q, K, self.weights(Q, K, mask), self.pointwise)

    def levels(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """The weights of n queries whose scores are these, (n, n), in each of two sequences that are the same."""
        n = scores.shape[-1]
        if not self.scored or not self.normalised or self.axis not in ((-1,), (-2,)) or self.pointwise:
            raise NoAnswerError("no score can be chosen")
        Q = torch.eye(n).expand(2, n, n)
        if self.axis == (-2,):  # its columns are what rows should be
            scores, mask = scores.mT, None if mask is None else mask.mT
        for_one = self.weights(Q, Q)[0]
        factor = (for_one[0, 0] / for_one[0, 1]).log().float()  # of Q Kᵀ, for this size
        weights = self.weights(Q, (scores.mT / factor).expand(2, n, n), mask)[0]
        return (weights.mT if self.axis == (-2,) else weights) / for_one.sum(self.axis)[0]

    def _ask(self, Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
        if self.averages_keys:  # so the values go where they are averaged, and the queries do not look at them
            nothing = Q.new_zeros(*Q.shape[:-1], V.shape[-1])
            Q, K = torch.cat((Q, nothing), -1), torch.cat((K, V), -1)
            return self.ask.tensor(Q.shape, Q, K, V, mask)[..., -V.shape[-1] :]
        if Q.dtype == torch.float32:
            Q, K, V = (x.to(self.usual.dtype) for x in (Q, K, V))
        given = [(Q, K, V)[i] for i in self.order]
        return self.ask.tensor((*Q.shape[:-1], V.shape[-1]), *given, mask)


@dataclass(frozen=True)
class Sample:
    """The weights of one call."""

    call: Call
    Q: Tensor
    K: Tensor
    weights: Tensor
    pointwise: Pointwise

    @property
    def where(self) -> str:
        return f"In {('three', 'four')[self.Q.ndim - 3]} dimensions"

    @property
    def normalised(self) -> str | None:
        """The axis over which the weights sum to 1."""
        return next((a for a, dims in AXES.items() if self._has(a) and near(self.weights.sum(dims), 1.0)), None)

    @property
    def axis(self) -> tuple[int, ...]:
        return AXES[self.normalised or "keys"]

    def scores(self) -> Tensor:
        """The logarithms of the weights, -inf for 0: the scores but for one number in each slice."""
        weights = self.weights.where(self.weights.abs() > NOTHING, 0.0)
        return (self.pointwise or torch.log)(weights).where(weights != 0, -torch.inf)

    def fit(self, products: Tensor, axis: tuple[int, ...] | None = None) -> tuple[float, float]:
        """The factor that makes `products` the scores, and how far that is from making them (0 to 1)."""
        came, axis = self.scores(), axis or self.axis
        seen = came.isfinite()
        came, predicted = centred(came, seen, axis), centred(products.double().expand_as(came), seen, axis)
        if not came.any():
            raise NoAnswerError("all weights are the same")
        factor = float((came * predicted).sum() / (predicted * predicted).sum())
        return factor, float((came - factor * predicted).norm() / came.norm())

    def _has(self, axis: str) -> bool:
        return axis != "heads" or self.weights.ndim > 3


def centred(x: Tensor, where: Tensor, axis: tuple[int, ...]) -> Tensor:
    """`x` less its mean along `axis`, of the places that count; 0 in the others."""
    x = x.where(where, 0.0)
    return (x - x.sum(axis, keepdim=True) / where.sum(axis, keepdim=True).clamp_min(1)).where(where, 0.0)
