"""The pages of `cs336 staff report`: what they say, what they must not say, and what nothing in them can do."""

import re
import subprocess
import sys
from collections.abc import Container, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from staff.tests import ROOT
from staff.tests.grading.test_gradebook import GRADING, scored
from staff.tests.grading.test_weights import drawn
from whichline.engine.assignment import Problem
from whichline.engine.finding import Finding
from whichline.engine.result import Check, Outcome, Result
from whichline_grader.grading.class_deductions import ClassDeduction, count_deductions, count_students, teach_next
from whichline_grader.grading.course import Course, Late
from whichline_grader.grading.final_grades import Entry, Grade
from whichline_grader.grading.gradebook import Gradebook, Results
from whichline_grader.grading.graded import Grading, Notes
from whichline_grader.grading.identity import HandedIn, Student
from whichline_grader.grading.pages import write_site
from whichline_grader.grading.report import Report

ATTENTION = "scaled_dot_product_attention"
PROBLEMS = {
    id: Problem(id, title, points, (), {f"test_{id}": 1.0, f"test_hidden_{id}": 1.0}, (), bonus)
    for id, title, points, bonus in (
        *(("softmax", "Softmax", 2.0, False), (ATTENTION, "Scaled dot-product attention", 5.0, False)),
        *(("rope", "RoPE", 3.0, False), ("blockwise_attention", "Blockwise attention", 3.0, True)),
    )
}
PROBLEMS["blockwise_attention"] = replace(PROBLEMS["blockwise_attention"], needs=(ATTENTION,))
HOSTILE = (
    *("<script>alert(1)</script>", "</table></main><img src=https://example.org/a.png onerror=alert(1)>"),
    *("javascript:alert(1)", '" onmouseover="alert(1)', "\u202egnp.exe\u2066", "a\0b\x1b[31m", "{{ 7 * 7 }}{% raw %}"),
    *("]]>--><!--", "&lt;b&gt;"),
)


def explanation(id: str, problem: str = ATTENTION, said: str = "You did it.", tests: Iterable[str] = ()) -> Finding:
    said_of = ("Yours is 0.143; it should be 0.378.", said)
    return Finding(problem, id, said_of, question="Why?", section="3 Attention", tests=tuple(tests))


def results(failing: Container[str] = (), unwritten: Container[str] = ("blockwise_attention",)) -> list[Result]:
    """Two tests for each problem: these fail, those are not written."""
    rows = []
    for problem in PROBLEMS.values():
        for test in problem.tests:
            row = Result(test, problem.id, "hidden" in test, problem.bonus, problem.points / 2, Outcome.PASSED)
            if problem.id in unwritten:
                row = replace(row, outcome=Outcome.FAILED, check=Check.NOT_WRITTEN, headline="not implemented yet")
            elif problem.id in failing:
                row = replace(row, outcome=Outcome.FAILED, check=Check.ANSWER, headline="the answer is wrong")
            rows.append(row)
    return rows


def entry(name: str, rows: list[Result] | None = None, **notes: Any) -> Entry:
    student, rows = Student(name, name), results() if rows is None else rows
    handed, path = HandedIn((student,)), f"/in/{name}.zip"
    grading = replace(GRADING, submission=name, path=path, handed_in=handed, results=rows, notes=Notes(**notes))
    grading = scored(grading)
    return Entry(grading, (Grade(student, handed, grading, None, 0.0),))


def site(folder: Path, *gradings: Grading, anonymous: bool = False, course: Course | None = None) -> dict[str, str]:
    """The pages of a gradebook that has these gradings, by name."""
    (folder / "gradebook.sqlite").unlink(missing_ok=True)
    with Gradebook(folder / "gradebook.sqlite") as gradebook:
        gradebook.score_with(PROBLEMS)
        for grading in gradings:
            gradebook.add(grading)
        write_site(Results(folder, gradebook, course or Course(), PROBLEMS), anonymous)
    pages = [folder / "index.html", *sorted((folder / "students").iterdir())]
    return {page.name: page.read_text(encoding="utf-8") for page in pages}


def hostile_grading(text: str, name: str, headline: str | None = None) -> Grading:
    """A grading in which every text is this one, and the headlines of wrong answers are if there is no `headline`."""
    ours = (Check.ANSWER, Check.PROPERTY)
    checks = (Check.CALL, *ours, Check.NOT_WRITTEN, Check.CALL, Check.CALL, *2 * (None,))
    ends = (*4 * (Outcome.FAILED,), Outcome.VIOLATION, *3 * (Outcome.FAILED,))
    hostile = partial(replace, headline=text, details=(text, f"  {text}"))
    together = zip(results(unwritten=()), checks, ends, strict=True)
    rows = [hostile(row, check=check, outcome=outcome) for row, check, outcome in together]
    rows = [replace(row, headline=headline) if headline and row.check in ours else row for row in rows]
    told = Finding("softmax", "softmax-fails-2d", (f"It fails: `{text}`.",), text, code=(text,), question="Why?")
    figure, forbidden = drawn(((1e300, None, -1.0, *4 * (0.0,)),) * 7), {"softmax": {"softmax": (text,)}}
    notes = Notes(stdout=text, stderr=text, missing=(text,), taken_in=(text,), forbidden=forbidden, figure=figure)
    notes = replace(notes, explanations=(told, replace(told, problem="rope")))
    handed = HandedIn((Student(f"{name}-{text}", text, text),))
    return replace(GRADING, submission=name, path=f"/in/{text}", handed_in=handed, results=rows, notes=notes)


def deductions_of(entries: Iterable[Entry]) -> list[ClassDeduction]:
    return count_deductions((each, Report(each.grading, PROBLEMS, each.grades)) for each in entries)


def teach(*entries: Entry) -> str:
    ran = [each for each in entries if not each.grading.notes.refused]
    return teach_next(deductions_of(ran), ran)


def test_what_to_teach_next_is_what_costs_most_on_the_page(tmp_path):
    says = {"attention-scale": "You do not scale.", "attention-half": "Half precision."}
    told = tuple(explanation(id, said=said, tests=[f"test_{ATTENTION}"]) for id, said in says.items())
    corner = [entry(f"corner{i}", results(["rope"]), explanations=(explanation("rope-x", "rope"),)) for i in range(3)]
    wrong = [entry(f"bad{i}", results([ATTENTION]), explanations=told) for i in range(4)]
    entries = [*wrong, *(entry(f"good{i}") for i in range(6)), *corner]
    costs = "what is wrong there costs 4 of 13 students 20.0 points."
    said = f"Teach Scaled dot-product attention (handout, section 3 Attention) next: {costs}"
    assert teach(*entries) == said
    page = site(tmp_path, *(each.grading for each in entries))["index.html"]
    assert said in page
    rows = [re.findall(r'number">([\d.]*)</td>', row) for row in re.findall(r"<tr>(?:(?!<tr>).)*</tr>", page, re.S)]
    attention = ["4", "10.0", "5.0", "5.0", ""]
    others = [["3", "9.0", "4.5", "4.5", ""], ["7", "29.0", "14.5", "14.5", ""]]
    assert [row for row in rows if len(row) == 5] == [attention, attention, *others]


def test_what_is_not_written_and_what_nothing_explains_are_taught_too():
    wrong = entry("wrong", results([ATTENTION]))
    costs = "what is wrong there costs 1 of 1 student 5.0 points."
    assert teach(wrong) == f"Teach Scaled dot-product attention next: {costs}"
    unwritten = [entry(f"s{i}", results(unwritten=("rope", "blockwise_attention"))) for i in range(2)]
    assert teach(wrong, *unwritten) == "Teach RoPE next: what is wrong there costs 2 of 3 students 6.0 points."
    unexplained = "Tests of Scaled dot-product attention fail, and nothing was found that explains it."
    assert [each.says for each in deductions_of([wrong, *unwritten])] == ["RoPE is not written.", unexplained]


def test_where_no_point_is_lost_nothing_is_taught():
    assert teach(*(entry(f"good{i}") for i in range(3))) == "Nobody loses a point: go on to what comes next."
    refused = entry("ada", results(PROBLEMS), refused="it is 3 GB")
    assert teach(refused) == "No submission was run: find out why before you teach anything."


def test_three_lines_are_shown_without_names_and_only_numbers_that_are_true_of_all(tmp_path):
    codes = [(f"ada_{i % 4}.py:{i}, in f", f"    return x / {i % 4}", "           ^^^^^") for i in range(9)]
    said = [explanation("softmax-x", "softmax", f"It is {i} times too large.") for i in range(9)]
    told = [replace(each, code=code) for each, code in zip(said, codes, strict=True)]
    entries = [entry(f"s{i}", results(["softmax"]), explanations=(each,)) for i, each in enumerate(told)]
    (one,) = deductions_of(entries)
    assert one.examples == [f"return x / {i}\n       ^^^^^" for i in range(3)]
    assert one.says == "Yours is …; it should be …. It is … times too large."
    assert "ada_" not in site(tmp_path, *(each.grading for each in entries))["index.html"]


def test_every_point_that_a_class_loses_is_in_one_row():
    tests = ["test_softmax", "test_hidden_softmax"]
    told = explanation("softmax-a", "softmax", tests=tests), explanation("softmax-b", "softmax", tests=tests[:1])
    entries = [
        entry("ada", results(["softmax"], unwritten=("rope", "blockwise_attention")), explanations=told),
        entry("alan", results([ATTENTION]), forbidden={"rope": {"rope": ("torch.rope in a.py:1: x",)}}),
        entry("kurt", [replace(row, outcome=Outcome.VIOLATION, check=Check.CALL) for row in results()]),
        entry("none", [replace(row, outcome=Outcome.NOT_RUN, check=None) for row in results()]),
    ]
    deductions = deductions_of(entries)
    assert sum(each.deduction.points for each in deductions) == sum(10 - each.grading.points for each in entries)
    points = {each.id: each.deduction.points for each in deductions if each.problem.id == "rope"}
    assert points == dict.fromkeys(("rope-not-written", "rope-not-own-work", "rope-not-run", "rope-unexplained"), 3)


def test_what_several_findings_explain_they_share():
    told = [explanation(f"softmax-{letter}", "softmax", tests=["test_softmax"]) for letter in "ab"]
    told += [explanation("softmax-c", "softmax", tests=["test_hidden_softmax"])]
    deductions = deductions_of([entry("ada", results(["softmax"]), explanations=tuple(told))])
    shares = [(each.id, each.deduction.public, each.deduction.hidden) for each in deductions]
    assert shares == [("softmax-a", 0.5, 0.5), ("softmax-b", 0.5, 0.5)]


def test_what_has_one_root_is_one_row_and_the_costliest_is_first():
    place = {"file": "adapters.py", "line": 3}
    attention = replace(explanation("attention-scale-missing"), **place)
    again = replace(explanation("blockwise-scale-missing", "blockwise_attention"), **place)
    late = replace(explanation("blockwise-as-earlier", "blockwise_attention"), repeats=("attention-scale-missing",))
    own = explanation("blockwise-other", "blockwise_attention")
    rows = results([ATTENTION, "blockwise_attention"], unwritten=())
    corner = [entry(f"c{i}", results(["softmax"]), explanations=(explanation("s-x", "softmax"),)) for i in range(2)]
    entries = [entry("ada", rows, explanations=(attention, again)), entry("alan", rows, explanations=(attention, late))]
    kurt = entry("kurt", results(["blockwise_attention"], unwritten=()), explanations=(own,))
    first, second, third = deductions_of([*corner, *entries, kurt])
    costs = first.deduction
    assert (first.id, costs.points, costs.bonus) == ("attention-scale-missing", 10, 6)
    assert (first.later, second.id, second.deduction.points) == ("Blockwise attention", "s-x", 4)
    assert [count_students([each]) for each in (first, second)] == [2, 2]
    assert (third.id, third.deduction.points, third.deduction.bonus) == ("blockwise-other", 0, 3)


def test_one_exception_is_one_root_in_whatever_it_breaks():
    said, code = ("It fails: `SyntaxError: '('`.",), ("adapters.py:2, in <module>",)
    told = [Finding(id, f"{id}-raises-it", said, "adapters.py", 2, code=code) for id in ("softmax", "rope")]
    (one,) = deductions_of([entry("ada", results(["softmax", "rope"]), explanations=tuple(told))])
    assert (one.problem.id, one.later) == ("softmax", "RoPE")


def test_a_students_page_has_what_is_theirs_alone(tmp_path):
    secret = results(["softmax"])
    secret[1] = replace(secret[1], headline="the answer is wrong", staff="the hidden input is 0.577")
    ada = entry("ada", secret, explanations=(explanation("softmax-x", "softmax", "It is Ada's."),)).grading
    alan = entry("alan", results(["rope"]), explanations=(explanation("rope-x", "rope", "It is Alan's."),)).grading
    pages = site(tmp_path, ada, alan)
    assert sorted(pages) == ["ada.html", "alan.html", "index.html"]
    assert "It is Ada&#39;s." in pages["ada.html"]
    assert "8.00 of 10 points" in pages["ada.html"]
    assert "alan" not in pages["ada.html"].lower()
    assert "index.html" not in pages["ada.html"]
    assert not [name for name, page in pages.items() if "0.577" in page]
    assert 'href="students/ada.html"' in pages["index.html"]


def test_pages_of_those_who_are_gone_are_removed_and_nothing_else(tmp_path):
    site(tmp_path, entry("ada").grading)
    (tmp_path / "students" / "mine.txt").write_text("kept")
    assert sorted(site(tmp_path, entry("alan").grading)) == ["alan.html", "index.html", "mine.txt"]


def test_without_names_nothing_says_whose_it_is(tmp_path):
    who = ("lovelace", "s1815", "ada@example.edu", "zip-of-ada", "ada_attention.py", "Ada's own words")
    name, key, email, submission, file, words = who
    text = f"{words} in {file} by {name}"
    grading = hostile_grading(text, submission, headline="the answer is wrong in 3 of 4 places")
    decided = replace(grading, handed_in=HandedIn((Student(key, name, email), Student("s2", "Alan"))))
    decided = replace(decided, path=f"/in/{name}/{file}")
    (tmp_path / "decisions.toml").write_text(
        f'[[adjust]]\nstudent = "{key}"\nproblem = "rope"\npoints = 0.5\ntext = "agreed with {name}"\n'
        f'[[waive]]\nstudent = "{key}"\nproblem = "softmax"\ntext = "asked {name}"\n'
        f'[[comment]]\nstudent = "{key}"\ntext = "Well done, {name}"\n'
    )
    site(tmp_path, entry("lovelace").grading)  # pages with names are there already
    pages = site(tmp_path, decided, *(entry(f"alan-{i}").grading for i in range(11)), anonymous=True)
    assert len(pages) == 1 + 12
    shown = [(name + page).lower() for name, page in pages.items()]
    assert not [(each, page) for page in shown for each in (*who, "alan") if each.lower() in page]
    assert "submission-07.html" in pages
    for said in ("an exception", "It fails: …", "rope: +0.5 points by staff"):
        assert said in "".join(pages.values())


def test_a_group_has_one_page_and_each_member_a_grade(tmp_path):
    members = HandedIn((Student("1", "Ada"), Student("2", "Alan")), at=datetime(2026, 9, 30, tzinfo=UTC))
    later = datetime(2026, 10, 5, tzinfo=UTC)
    course = Course(due=datetime(2026, 9, 29, tzinfo=UTC), late=Late(percent=10), extensions={"2": later})
    pages = site(tmp_path, replace(entry("team").grading, handed_in=members), course=course)
    assert sorted(pages) == ["index.html", "team.html"]
    for said in ("<bdi>Ada</bdi>, <bdi>Alan</bdi>", '<td class="number">9.0 / 10.0</td>', "After penalty"):
        assert said in pages["index.html"]
    assert "After penalty" not in site(tmp_path, entry("ada").grading)["index.html"]


def test_refused_violations_and_remarks_are_apart(tmp_path):
    refused = entry("refused", results(PROBLEMS), refused="it is 3 GB").grading
    line = "torch.softmax in a.py:1: x"
    violating = entry("violating", forbidden={"softmax": {"softmax": (line,)}}, sources={line: "the source"}).grading
    left_out = entry("left-out", taken_in=("big.bin was left out",)).grading
    page = site(tmp_path, refused, violating, left_out)["index.html"]
    for text in ("violation of the rules", f"softmax: {line}", "the source", "refused, not run", "remark</span>"):
        assert text in page
    assert page.index("Not graded") < page.index("it is 3 GB") < page.index("To look at") < page.index("big.bin")


def test_students_of_the_roster_who_have_no_grade_are_named(tmp_path):
    roster = tmp_path / "roster.csv"
    roster.write_text('Student,ID\nPoints Possible,\n"Lovelace, Ada",ada\n"Hopper, Grace",grace\n')
    course = Course(roster=str(roster))
    page = site(tmp_path, entry("ada").grading, course=course)["index.html"]
    assert re.findall("<bdi>(.*)</bdi> <span class=.soft.>in the roster, nothing graded", page) == ["Hopper, Grace"]
    assert "Hopper" not in site(tmp_path, entry("ada").grading, course=course, anonymous=True)["index.html"]


class Page(HTMLParser):
    """What a browser makes elements and attributes of."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, *attribute) for attribute in attrs]


def test_hostile_text_is_text(tmp_path):
    harmless = site(tmp_path, *(hostile_grading("x", f"s{i}") for i in range(len(HOSTILE))))
    pages = site(tmp_path, *(hostile_grading(text, f"s{i}") for i, text in enumerate(HOSTILE)))
    for (name, text), expected in zip(pages.items(), [Page(page) for page in harmless.values()], strict=True):
        assert not re.search("[\0\x1b\u202e\u2066]", text), name
        page = Page(text)
        assert page.tags == expected.tags, name  # as if every text were a letter
        assert {attribute for _, attribute, _ in page.attributes} == {a for _, a, _ in expected.attributes}
        links = {value for _, attribute, value in page.attributes if attribute in ("href", "src")}
        assert all(re.match(r"#\w+$|students/s\d\.html$", link or "") for link in links)


def test_a_line_of_a_hundred_thousand_letters_is_cut_off(tmp_path):
    assert all(len(page) < 60_000 for page in site(tmp_path, hostile_grading("x" * 100_000, "long")).values())


def test_the_policy_lets_a_page_load_and_run_nothing(tmp_path):
    nothing = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    for page in site(tmp_path, entry("ada").grading).values():
        assert re.findall(r'Policy" content="(.*?)"', page) == [nothing]
        assert "<script" not in page
        assert "http" not in page.replace("http-equiv", "")


def test_a_report_needs_no_torch(tmp_path):
    site(tmp_path, hostile_grading("x", "s0"))
    run = "import sys; from whichline_grader.cli import staff; staff(['report', *sys.argv[1:]], standalone_mode=False)"
    for more in ([], ["--anonymous"]):
        command = [sys.executable, "-c", f"{run}; sys.exit('torch' in sys.modules)", str(tmp_path), *more]
        subprocess.run(command, cwd=ROOT, check=True)
