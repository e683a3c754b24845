"""The catalogue: every misconception loses a public test and is called by its own name; right programs lose none."""

from pathlib import Path

import pytest

from cs336_kit.engine.assignment import find_root, load_problems
from cs336_kit.engine.case import case_names, load_case
from cs336_kit.examination.diagnosis import load_mistakes
from cs336_kit.examination.relations import SIGNS
from cs336_staff.authoring.misconceptions import CATALOGUE, FAMILIES
from cs336_staff.authoring.misconceptions.parts import SECTIONS
from cs336_staff.authoring.rehearsal import rehearse
from cs336_staff.authoring.right_styles import CORRECT
from cs336_staff.authoring.wrong import same_outcome, wrong_outcomes

ROOT = find_root(Path(__file__).parent)
FAMILY = {
    "scaled_dot_product_attention": "attention",
    "multihead_self_attention": "multihead",
    "blockwise_attention": "blockwise",
}
# One of each problem, and each way in which a mistake is recognised: by numbers, by an error, by a sign.
SAMPLE = (
    "softmax-ignores-dim",
    "softmax-detached",
    "softmax-in-place",
    "attention-by-d_k",
    "attention-dropout",
    "attention-mask-required",
    "linear-bias",
    "rope-half-tables",
    "multihead-heads-inner",
    "module-dropout-not-rescaled",
    "module-weights-before-mask",
    "cross-padding-along-queries",
    "blockwise-nothing-rescaled",
)


@pytest.mark.parametrize("id", SAMPLE)
def test_a_misconception_is_caught_and_named(id):
    """A sample of them: `cs336 staff verify` looks at all."""
    entry = CATALOGUE[id]
    rehearsal = rehearse(ROOT, {**CORRECT["einsum"], **entry.adapters})
    assert rehearsal.failures
    assert rehearsal.explained[FAMILY.get(entry.problem, entry.problem)] == [id]
    assert rehearsal.named == {id}
    assert any([mistake.id for mistake in failure.mistakes] == [id] for failure in rehearsal.failures.values())


@pytest.mark.parametrize("style", CORRECT)
def test_a_right_program_passes_everything(style):
    rehearsal = rehearse(ROOT, CORRECT[style])
    assert rehearsal.failures == {}
    assert rehearsal.explained == {}
    assert rehearsal.passed


def test_the_catalogue_is_well_formed():
    assert len(CATALOGUE) == sum(len(family.ENTRIES) for family in FAMILIES), "an id is used twice"
    assert len({entry.name for entry in CATALOGUE.values()}) >= len(CATALOGUE) - 3, "names should tell mistakes apart"
    assert SECTIONS.keys() == load_problems(ROOT).keys()
    for entry in CATALOGUE.values():
        assert entry.hint.rstrip(".").count("?"), f"the hint of {entry.id} asks nothing"
        assert not entry.name.endswith("."), f"{entry.id}: the report adds the full stop"
        assert entry.sign in ("", *SIGNS), f"{entry.id}: no such sign"


def test_students_get_the_names_and_hints():
    assert load_mistakes(ROOT / "fixtures").keys() == CATALOGUE.keys()
    assert load_mistakes(ROOT / "fixtures")["softmax-log"].section == "2 Softmax"


@pytest.mark.parametrize("name", ["softmax/square", "attention-gradients/3d-random-mask", "multihead/square"])
def test_the_stored_wrong_answers_are_what_the_misconceptions_give(name):
    case = load_case(ROOT / "fixtures", name)
    call = {"softmax": "run_softmax", "attention": "run_scaled_dot_product_attention"}
    fresh = wrong_outcomes(case, call.get(case.family, "run_multihead_self_attention"))
    stored = case.wrong()
    assert stored.keys() == fresh.keys()
    for id, outcomes in fresh.items():
        assert list(stored[id]) == list(outcomes), id
        assert all(same_outcome(stored[id][check], outcome) for check, outcome in outcomes.items()), id


def test_no_two_misconceptions_fail_alike():
    """Two that no case tells apart would be one entry: what they give, over all cases, differs somewhere."""
    seen: dict[str, dict[str, str]] = {id: {} for id in CATALOGUE}
    for name in case_names(ROOT / "fixtures", "**/*"):
        for id, outcomes in load_case(ROOT / "fixtures", name).wrong().items():
            for check, outcome in outcomes.items():
                kept = (
                    outcome
                    if isinstance(outcome, str)
                    else str((outcome.dtype, outcome.double().round(decimals=3).tolist()))
                )
                seen[id][f"{name} {check}"] = kept
    by_outcomes: dict[str, list[str]] = {}
    for id, outcomes in seen.items():
        by_outcomes.setdefault(str(sorted(outcomes.items())), []).append(id)
    assert [ids for ids in by_outcomes.values() if len(ids) > 1] == []
