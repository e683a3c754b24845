"""Each link of a page leads to a file, and to a heading of it."""

import re
import subprocess
from pathlib import Path

import pytest

from staff.tests import ROOT
from whichline_grader.release.handout import OVERLAY

PAGES = subprocess.check_output(["git", "ls-files", "*.md"], cwd=ROOT, text=True).splitlines()
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"^(```+)(?s:.*?)^\1`*$|`[^`\n]+`", re.MULTILINE)


def list_anchors(page: Path) -> set[str]:
    """The names of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_a_link_leads_somewhere(page: str) -> None:
    for link in LINK.findall(CODE.sub("", (ROOT / page).read_text(encoding="utf-8"))):
        if link.startswith(("https://", "mailto:")):
            continue
        name, _, anchor = link.partition("#")
        places = [(ROOT / page).parent / name, ROOT / OVERLAY / name] if name else [ROOT / page]
        places += [ROOT / name] if page.startswith(OVERLAY) else []  # it lies at the top of what students have
        found = [place for place in places if place.exists()]
        assert found, f"{page} links to {link}"
        assert not anchor or anchor in list_anchors(found[0]), f"{page} links to {link}"


def test_each_test_that_the_page_on_security_names_is_there() -> None:
    page = (ROOT / "packages/grader/whichline_grader/docs/security.md").read_text(encoding="utf-8")
    files = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "staff/tests").rglob("*.py")}
    for name in re.findall(r"`(?:\w+/)?(test_\w+(?:\.py)?)`", page):
        assert name in files or any(f"def {name}(" in source for source in files.values()), name
