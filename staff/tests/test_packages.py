"""The engine and the grader are for every assignment: they know none."""

import re

import pytest

from staff.tests import ROOT

OF_ONE = re.compile(
    r"\b(cs336\w*|\w*attention|softmax|causal\w*|rope|rotary|multi_?-?heads?|queries|d_k|[34]d)\b", re.IGNORECASE
)
# Names of torch's own, and of the assignment that `new-assignment` writes.
ALLOWED = ("flex_attention",)


@pytest.mark.parametrize("package", ["whichline/whichline", "grader/whichline_grader"])
def test_no_word_of_an_assignment_is_in_it(package: str) -> None:
    folder = ROOT / "packages" / package
    found = [
        f"{path.relative_to(folder)}:{number}: {match[0]}"
        for path in sorted(folder.rglob("*"))
        if path.suffix in (".py", ".html", ".css", ".toml")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        for match in OF_ONE.finditer(line)
        if match[0] not in ALLOWED
    ]
    assert not found, "\n" + "\n".join(found)


def test_the_pattern_finds_what_it_is_for() -> None:
    for text in ("your attention", "run_scaled_dot_product_attention", "cs336_basics", "a causal mask", "the 3d cases"):
        assert OF_ONE.search(text), text
    assert not OF_ONE.search("a header of the engine")
