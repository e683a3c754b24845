"""Examine a student's attention: whose keys it looks at, how it scores them, what its weights sum to.

What it makes of the mask is in attention_mask.py, how it is asked in attention_state.py.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cs336_kit.engine.case import Case
from cs336_kit.examination import attention_mask as mask
from cs336_kit.examination.attention_calls import VARIATIONS, Call, touches_shared_keys
from cs336_kit.examination.attention_state import (
    Attention,
    centred,
    finding,
    touches_batch,
    touches_scores,
)
from cs336_kit.examination.contract import Contract
from cs336_kit.examination.crash import Calls, try_calls
from cs336_kit.examination.experiment import Ask, Finding, NoAnswerError, examine, near, span

SECTION = "3 Attention"


def examine_attention(run: Callable[..., Any]) -> list[Finding]:
    """Say what is wrong with `run(Q, K, V, mask)`, the most fundamental first."""
    ask = Ask(run)
    calls = try_calls(ask, "attention", SECTION, Call(), "for (batch, positions, d) with a mask", VARIATIONS)
    if calls.works is None:
        return calls.findings
    student = Attention(ask, calls.works, calls.failed)
    student.find_free()
    contract = contract_of(ask, calls.works)
    experiments = (
        partial(repeatable, student),
        *(partial(each, student) for each in (values, sums, scores, scale, batches, broadcasting)),
        *(partial(each, student) for each in (mask.hidden_keys, mask.without_mask, mask.mask_shapes)),
        *(partial(each, student) for each in (mask.finite_fill, mask.nothing_to_see, large_scores)),
        contract.dtype,
        partial(precision, student),
        contract.inputs_left_alone,
        partial(gradients, student, contract),
        partial(mask.gradients_with_nothing, student),
    )
    found = examine(experiments)
    return [*(each for each in calls.findings if not explained(each, calls, student)), *found]


def explained(crash: Finding, calls: Calls[Call], student: Attention) -> bool:
    """Test whether the call works once the mistakes found are corrected; nothing else need then be said of it."""
    if not student.corrected:
        return False
    if crash.id not in calls.broken:
        return False
    for call in calls.broken[crash.id]:
        if call.allowed() is None:
            return False  # a mask is what is missing
        try:
            student.answer(*call.arguments)
        except NoAnswerError:
            return False
    return True


def contract_of(ask: Ask, call: Call) -> Contract:
    return Contract(ask, "attention", SECTION, ("Q", "K", "V", "mask"), call.arguments, call.shape)


def repeatable(student: Attention) -> Finding | None:
    """Check that the same call gives the same answer; if not, measure the share of the weights that is dropped."""
    free = "without-mask" not in student.failed
    found = contract_of(student.ask, replace(student.usual, mask=None) if free else student.usual).repeatable()
    if found and found.id == "attention-random":
        Q = torch.eye(16).expand(2, 16, 16)
        student.dropped = round(20 * float((student.weights(Q, Q) == 0).double().mean())) / 20
    return found


def gradients(student: Attention, contract: Contract) -> Finding | None:
    """Check the gradients; where the keys are averaged, it is not news that V gets none.

    The mask is as the student reads it: a row that is hidden throughout may have no gradient to speak of.
    """
    *tensors, mask = contract.arguments
    if mask is not None and student.read_as:
        contract.arguments = (*tensors, student.read_as(mask))
    found = contract.gradients()
    return None if found and found.id == "attention-gradient-cut" and student.averages_keys else found


# What becomes of the values


def values(student: Attention) -> Finding | None:
    """Check that the answer is an average of V."""
    call = student.call(queries=4, d_v=7)
    Q, K, V = call.tensors()
    answer = student.answer(Q, K, V)
    doubled = student.answer(Q, K, 2 * V)
    if near(doubled, 2 * answer):
        return None
    measured = "With V doubled your answer is not doubled"
    question = "Which of K and V is compared with the queries, and which one is averaged?"
    unused = near(student.answer(Q, K, V.flip(-1)), answer)
    if unused and near(student.answer(Q / 2, 2 * K, V), 2 * answer):
        student.averages_keys = True
        measured = "With V doubled your answer stays the same; with K doubled and Q halved, it is doubled."
        return finding("attention-values-are-keys", measured, "You average the keys, not the values.", question)
    if near(student.answer(Q, 2 * K, V), 2 * answer):
        student.order = (0, 2, 1)
        measured += "; with K doubled it is."
        return finding("attention-keys-values-swapped", measured, "You use K as V and V as K.", question)
    student.averages = near(student.answer(Q, K, 0 * V) + 1, 1.0)
    measured += f": it changes by {span(doubled - answer)} where it should change by {span(answer)}."
    return finding("attention-not-linear-in-values", measured, "", "What do you do with V besides averaging it?")


def sums(student: Attention) -> Finding | None:
    """Measure what the weights sum to, and over which axis."""
    three, four = student.samples()
    student.axis = three.axis
    wrong = next((each for each in (three, four) if each.normalised != "keys"), None)
    if wrong is None:
        return None
    if wrong.weights.isnan().any():
        measured = f"{wrong.where} {int(wrong.weights.isnan().sum())} of {wrong.weights.numel()} weights are NaN."
        return finding("attention-nan", measured, "", "Where does an infinity meet a 0 or another infinity?")
    over_keys = wrong.weights.sum(-1)
    measured = f"{wrong.where} the weights of a query sum to {span(over_keys)} over the keys; it should be 1."
    if wrong.weights.min() < -1e-3:
        linear = replace(wrong, pointwise=Tensor.clone)
        if any(linear.fit(product(wrong.Q.double(), wrong.K.double()))[1] < 1e-2 for _, product, _, _ in SCORES):
            student.pointwise = Tensor.clone
        measured = f"{wrong.where} your weights are {span(wrong.weights)}; none should be negative."
        means = "They are the scores: no softmax is applied." if student.pointwise else ""
        return finding("attention-no-softmax", measured, means, "What turns scores into weights?")
    if wrong.normalised:
        measured = (
            f"{wrong.where} the weights sum to 1 over the {wrong.normalised} and to {span(over_keys)} over the "
            "keys; those of each query should sum to 1 over the keys."
        )
        pair = (three.normalised, four.normalised)
        dim: dict[tuple[str | None, str | None], int]
        dim = {("queries", "heads"): 1, ("keys", "queries"): 2, ("queries", "queries"): -2, ("batch", "batch"): 0}
        means = f"Your softmax runs over dim={dim[pair]}." if pair in dim else ""
        id = f"attention-softmax-over-{wrong.normalised.partition(' ')[0]}"
        if len(wrong.axis) > 1:
            id = "attention-softmax-over-both"
        elif three.normalised == "keys" or pair == ("queries", "heads"):
            id = f"attention-softmax-dim-{dim.get(pair, 'of-4d')}"
        return finding(id, measured, means, "Which axis disappears when the weights meet V?")
    if near(wrong.weights, 1.0):
        measured = f"{wrong.where} every weight is 1, whatever Q and K are."
        question = "Which letter do the weights and V share in your einsum, or over which axis do you sum?"
        return finding("attention-values-summed", measured, "", question)
    if near(wrong.weights, wrong.weights.mean()):
        return None  # which `scores` says
    if near(over_keys, over_keys.mean()):
        root = math.sqrt(wrong.call.d_k)
        is_root = near(over_keys, 1 / root)
        measured += f" 1/√d_k is {1 / root:.4g} here." if is_root else ""
        means = "You divide by √d_k after the softmax." if is_root else "The weights are scaled after the softmax."
        question = "What may still be done to the weights once they sum to 1?"
        return finding("attention-weights-scaled", measured, means, question)
    missing = 1 - over_keys.unsqueeze(-1)
    if (missing > 0).all() and near((wrong.weights / missing).log(), wrong.Q @ wrong.K.mT / math.sqrt(wrong.call.d_k)):
        student.normalised = False
        measured += " What is missing is the weight of one more key, whose score is 0."
        question = "What does your sum start from, and relative to which maximum?"
        return finding("attention-extra-key", measured, "", question)
    question = "What do you divide the exponentials by, and along which axis?"
    logits = torch.logit(wrong.weights)
    all_products = [product(wrong.Q.double(), wrong.K.double()) for _, product, _, _ in SCORES]
    if any(near(logits, products * (logits * products).sum() / products.square().sum()) for products in all_products):
        student.pointwise = torch.logit
        means = "Each weight is the sigmoid of its own score, whatever the other scores are."
        return finding("attention-sigmoid", measured, means, question)
    everywhere = torch.ones_like(logits, dtype=torch.bool)
    of_rows = centred(wrong.scores() - all_products[0] / math.sqrt(wrong.call.d_k), everywhere, (-1,))
    if of_rows.isfinite().all() and centred(of_rows, everywhere, (-2,)).abs().max() < 1e-3 < of_rows.abs().max():
        student.normalised = False
        means = "Each weight is divided by the sum of the wrong query: the one with the same number as its key."
        question = "What shape is the sum that you divide by, and how does broadcasting line it up with the weights?"
        return finding("attention-divisor-of-another", measured, means, question)
    return finding("attention-weights-sum", measured, "", question)


# The scores


def cosine(Q: Tensor, K: Tensor) -> Tensor:
    return Q / Q.norm(dim=-1, keepdim=True) @ (K / K.norm(dim=-1, keepdim=True)).mT


def reshaped(Q: Tensor, K: Tensor) -> Tensor:
    return Q @ K.reshape(*K.shape[:-2], K.shape[-1], K.shape[-2])


SCORES: tuple[tuple[str, Callable[[Tensor, Tensor], Tensor], str, str], ...] = (
    ("", lambda Q, K: Q @ K.mT, "", ""),
    (
        "cosine",
        cosine,
        "the cosines between queries and keys",
        "Do the scores change when a query becomes twice as long? Should they?",
    ),
    (
        "keys-reshaped",
        reshaped,
        "the products with K reshaped to (d_k, keys)",
        "After a reshape, is the first column still the first key?",
    ),
    (
        "transposed",
        lambda Q, K: K @ Q.mT if Q.shape == K.shape else torch.full((Q.shape[-2], K.shape[-2]), math.nan),
        "K Qᵀ",
        "Which shape should the scores have, (queries, keys) or (keys, queries)?",
    ),
    (
        "distance",
        torch.cdist,
        "the distances between queries and keys",
        "What does the handout use to measure resemblance?",
    ),
    (
        "first-keys",
        lambda Q, K: Q @ K[:1].mT,
        "the products with the keys of the first sequence",
        "Which axis holds the sequences of a batch? What does K[0] drop?",
    ),
    (
        "other-batch",
        lambda Q, K: Q @ K.flip(0).mT,
        "the products with the keys of another sequence",
        "What lines up the sequences of Q with those of K in your code?",
    ),
    (
        "batch-summed",
        lambda Q, K: (Q @ K.mT).sum(0, keepdim=True),
        "the products summed over the batch",
        "Which letters of your einsum are missing on the right?",
    ),
    (
        "keys-backwards",
        lambda Q, K: Q @ K.flip(-2).mT,
        "the products with the keys in reverse order",
        "Which key should the first column belong to?",
    ),
)


def scores(student: Attention) -> Finding | None:
    """Find out what the scores are made of."""
    sample = student.sample(student.call())
    if near(sample.weights, 1.0) or sample.weights.isnan().any():
        return None  # which `sums` says
    if near(sample.weights, sample.weights.mean()):
        measured = f"All your weights are {span(sample.weights)}, whatever Q and K are."
        question = "Where do the scores get lost?"
        return finding("attention-weights-uniform", measured, "", question, touches=touches_scores)
    for name, product, words, question in SCORES:
        factor, misfit = sample.fit(product(sample.Q.double(), sample.K.double()), student.divided_along)
        if not misfit < 1e-2:
            continue
        student.scored = name in ("", "transposed", "first-keys")
        student.product = product
        if name == "transposed":
            student.order, student.product = (1, 0, 2), SCORES[0][1]
        if not name:
            return None
        measured = f"The logarithms of your weights are {words} times {factor:.4g}, and should be Q Kᵀ times 1/√d_k."
        return finding(f"attention-scores-{name}", measured, "", question, touches=touches_scores)
    if not student.normalised:
        return None
    _, misfit = sample.fit(sample.Q @ sample.K.mT)
    measured = f"The logarithms of your weights are not a multiple of Q Kᵀ: {misfit:.0%} of them is something else."
    return finding("attention-scores-other", measured, "", "What do you do with the scores before the softmax?")


LAWS: tuple[tuple[str, str, Callable[[Call], float]], ...] = (
    ("missing", "You do not scale the scores.", lambda c: 1.0),
    ("by-d_k", "You divide by d_k, not by √d_k.", lambda c: 1 / c.d_k),
    ("by-half-d_k", "You divide by d_k/2: `d_k ** 1 / 2` is (d_k ** 1) / 2.", lambda c: 2 / c.d_k),
    ("by-root-d_v", "You divide by √d_v, not by √d_k.", lambda c: c.d_v**-0.5),
    ("by-root-keys", "You divide by the root of the number of keys.", lambda c: c.keys**-0.5),
    ("by-root-queries", "You divide by the root of the number of queries.", lambda c: c.queries**-0.5),
    ("by-root-batch", "You divide by the root of the size of axis 0.", lambda c: c.batch[0] ** -0.5),
    ("by-root-axis-1", "You divide by the root of the size of axis 1.", lambda c: (*c.batch, c.queries)[1] ** -0.5),
    ("multiplied", "You multiply by √d_k.", lambda c: c.d_k**0.5),
    ("fourth-root", "You divide by the fourth root of d_k.", lambda c: c.d_k**-0.25),
    ("base-2", "You divide by √d_k, and take powers of 2, not of e.", lambda c: math.log(2) * c.d_k**-0.5),
    ("sign", "The sign of the scores is reversed.", lambda c: -(c.d_k**-0.5)),
)


def scale(student: Attention) -> Finding | None:
    """The factor in front of Q Kᵀ, for two sizes."""
    both = student.samples()
    fits = [student.fit(each) for each in both]
    if student.product in (cosine, torch.cdist) or not all(misfit < 1e-2 for _, misfit in fits):
        return None
    factors = [factor for factor, _ in fits]
    right = [each.call.d_k**-0.5 for each in both]
    if near(torch.tensor(factors), torch.tensor(right)):
        return None
    laws = (law for law in LAWS if near(torch.tensor(factors), torch.tensor([law[2](each.call) for each in both])))
    id, means, _ = next(laws, ("other", "", None))
    if both[0].call.queries == both[0].call.keys and id == "by-root-keys":
        means = "You divide by the root of the number of keys, or of queries."
    if id == "other" and near(*factors):
        id, means = "constant", f"You divide by {1 / factors[0]:.4g} whatever d_k is."
    what = "Q Kᵀ" if student.product is SCORES[0][1] else "those products"
    measured = " and ".join(
        f"{what} times {factor:.4g} for d_k = {each.call.d_k} (1/√d_k is {root:.4g})"
        for factor, each, root in zip(factors, both, right, strict=True)
    )
    question = "What is the variance of the dot product of two random vectors of length d_k?"
    return finding(f"attention-scale-{id}", f"Your scores are {measured}.", means, question, touches=touches_scores)


def batches(student: Attention) -> Finding | None:
    """Check that each entry of a batch is computed independently of the others."""
    call = student.call((2, 3) if "4d" not in student.failed else (3,), 4, 4, 5, 5)
    if (
        not student.usual.batch
        or student.product is not SCORES[0][1]
        or {0, -3} & {d for each in student.samples() for d in each.axis}
    ):
        return None
    Q, K, V = call.tensors()
    answer = student.answer(Q, K, V).reshape(-1, 4, 5)
    count = math.prod(call.batch)
    for i in range(count):
        other_K, other_V = K.clone(), V.clone()
        other_K.view(count, -1)[i] *= -1
        other_V.view(count, -1)[i] += 1
        moved = (student.answer(Q, other_K, other_V).reshape(-1, 4, 5) - answer).abs().amax((-2, -1)) > 1e-4
        if moved.tolist() != [j == i for j in range(count)]:
            words = ", ".join(str(j) for j in range(count) if moved[j]) or "none"
            measured = (
                f"When K and V of entry {i} of {count} in the batch {call.batch} change, the entries whose answers "
                f"change are: {words}; it should be {i} alone."
            )
            question = "What lines up the entries of Q, K and V in your code?"
            return finding("attention-batch-mixed", measured, "", question, touches=touches_batch)
    return None


def broadcasting(student: Attention) -> Finding | None:
    """Check that shared keys and values give the same answer as when they are written out for every head."""
    if "shared-keys" in student.failed or not student.usual.batch:
        return None
    Q, K, V = replace(student.call((2, 3), 4, 4, 5, 5), kv_batch=(2, 1)).tensors()
    came, right = student.answer(Q, K, V), student.answer(Q, K.repeat(1, 3, 1, 1), V.repeat(1, 3, 1, 1))
    if near(came, right):
        return None
    measured = (
        "K and V of shape (2, 1, 4, 5), beside Q of shape (2, 3, 4, 5), give a different answer from the same K and V "
        f"repeated for the 3 heads: it is off by up to {float((came - right).abs().max()):.3g}."
    )
    question = "Which key belongs to head 1 of sequence 0, and which does your code take?"
    return finding("attention-broadcast", measured, "", question, touches=touches_shared_keys)


# Size and precision


def large_scores(student: Attention) -> Finding | None:
    """List the large scores that give NaN or only zeros."""
    near_zero = torch.arange(4.0).expand(4, 4)
    apart = near_zero.clone()
    apart[1:] -= 1e4
    wide = near_zero.clone()
    wide[:, 1:] -= 1e4
    tries = {
        "around 10,000": near_zero + 1e4,
        "around -10,000": near_zero - 1e4,
        "around 0 for one query and around -10,000 for others": apart,
        "of 0 and of -10,000 for one query": wide,
    }
    sums = {words: student.levels(scores).sum(-1) for words, scores in tries.items()}
    failed = {words: float(total[~(total > 0.01)][0]) for words, total in sums.items() if not (total > 0.01).all()}
    if not failed:
        return None
    measured = "; ".join(f"for scores {words} the weights sum to {total:.3g}" for words, total in failed.items())
    measured = f"{(measured[0].upper() + measured[1:]).replace('nan', 'NaN')}; it should be 1."
    question = "What does your softmax subtract from the scores of one query before it takes their exponentials?"

    def touches(case: Case) -> bool:
        return float((case.Q.double() @ case.K.double().mT).abs().max()) > 50 * math.sqrt(case.Q.shape[-1])

    _, low, far, _ = tries
    name = {(far,): "-far-apart", (low, far): "-below-zero"}.get(tuple(failed), "")
    return finding(f"attention-large-scores{name}", measured, "", question, touches=touches)


def precision(student: Attention) -> Finding | None:
    """Measure how many digits are right for inputs in float64."""
    if student.product is not SCORES[0][1] or "float64" in student.failed:
        return None
    sample = student.sample(student.call(), torch.float64)
    if student.ask(*replace(student.usual, dtype=torch.float64).arguments).dtype != torch.float64:
        return None
    factor, misfit = student.fit(sample)
    right = sample.call.d_k**-0.5
    question = "Which of your tensors or numbers is float32 whatever Q is?"
    if misfit > 1e-11:
        measured = f"For inputs in float64 your weights are right to {-math.log10(misfit):.0f} digits; float64 has 16."
        return finding("attention-float32-inside", measured, "", question, touches=touches_float64)
    if 1e-12 < abs(factor / right - 1) < 1e-4:
        measured = f"For inputs in float64 your factor is {factor:.14f}; 1/√{sample.call.d_k} is {right:.14f}."
        means = "The scale is rounded to float32."
        return finding("attention-scale-rounded", measured, means, question, touches=touches_float64)
    return None


def touches_float64(case: Case) -> bool:
    return case.dtype == torch.float64
