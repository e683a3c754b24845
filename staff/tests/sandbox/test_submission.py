"""What is taken in, and what is refused and why."""

import io
import os
import stat
import struct
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from staff.tests import ROOT
from staff.tests.files import write_files
from whichline_grader.sandbox import files as reading
from whichline_grader.sandbox import submission
from whichline_grader.sandbox.files import MIB, Refused
from whichline_grader.sandbox.submission import take_in

FLAT = {"adapters.py": "a = 1", "cs336_basics/nn.py": "b = 2"}
CS336 = {"tests/adapters.py": "a = 1", "tests/common.py": "", "cs336_basics/nn.py": "b = 2"}
INSTEAD = "put your code into adapters.py and cs336_basics/, "
INSTEAD += "and hand in the submission.zip that `uv run cs336 submit` writes"
READABLE = "expected a zip archive that can be read"
IMPORTS = "def run_softmax(x, dim):\n    from cs336_basics.nn.functional import softmax\n    return softmax(x, dim)\n"
LEFT_OUT = "left out, since they are links or devices, not files: 'old/link.py'"
STUB = 'import torch\ndef run_softmax(x, dim):\n    """softmax"""\n    raise NotImplementedError\n'
DONE = "import torch\ndef run_softmax(x, dim):\n    return x\n"
NO_ADAPTERS = "expected adapters.py, or tests/adapters.py, at the root of the submission or one folder down, got"
NOT_TO_BE_SHOWN = "expected printable paths of at most 240 characters, got"
HOSTILE = ["-" * 60_000 + "1", "a" + "+a" * 30_000, "a" + ".b" * 30_000, "[" * 60_000, "f(" * 30_000, "lambda:" * 9_000]
KINDS = {"a.ipynb": "a notebook", "a.PDF": "a PDF", "a.7z": "a 7z archive", "a.rar": "a RAR archive"}


def archive(at: Path, files: Mapping[str, str | bytes]) -> Path:
    with zipfile.ZipFile(path := at / "handed-in.zip", "w", zipfile.ZIP_DEFLATED) as out:
        for name, source in files.items():
            out.writestr(name, source)
    return path


def tar(at: Path, files: dict[str, str]) -> Path:
    with tarfile.open(path := at / "handed-in.tar.gz", "w:gz") as out:
        for name, source in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(source)
            out.addfile(info, io.BytesIO(source.encode()))
    return path


def below(prefix: str, files: dict[str, str]) -> dict[str, str]:
    return {prefix + path: source for path, source in files.items()}


@pytest.mark.parametrize("make", [write_files, archive, tar])
@pytest.mark.parametrize("around", ["", "one/", "around/one/"])
@pytest.mark.parametrize(("files", "adapters"), [(FLAT, "adapters"), (CS336, "tests.adapters")])
def test_layouts(make: type, around: str, files: dict[str, str], adapters: str, tmp_path: Path) -> None:
    taken = take_in(make(tmp_path, below(around, files)))
    assert (taken.adapters, taken.files) == (adapters, {path: source.encode() for path, source in files.items()})


def test_a_single_file_is_its_own_adapters(tmp_path: Path) -> None:
    path = write_files(tmp_path, {"ada.py": "x = 1"}) / "ada.py"
    assert take_in(path) == submission.Submission("ada.py", {"adapters.py": b"x = 1"}, "adapters")


def test_files_handed_in_without_their_folder_lie_where_they_are_imported_from(tmp_path: Path) -> None:
    loose = {"adapters.py": IMPORTS, "functional.py": "from cs336_basics.given.checks import x"}
    names = {name: f"ada_1_2_{name}" for name in loose}
    write_files(tmp_path / "in", {names[name]: source for name, source in loose.items()})
    taken = take_in(tmp_path / "in" / names["adapters.py"], {each: tmp_path / "in" / names[each] for each in loose})
    assert taken.files["cs336_basics/nn/functional.py"] == taken.files["functional.py"]
    assert taken.files["cs336_basics/given/checks.py"].startswith(b'"""')
    assert take_in(write_files(tmp_path / "folder", loose)).files == taken.files


def test_the_same_content_has_the_same_hash(tmp_path: Path) -> None:
    first, second = take_in(write_files(tmp_path / "a", FLAT)), take_in(archive(tmp_path, below("x/", FLAT)))
    assert first.sha256 == second.sha256
    assert first.sha256 != take_in(write_files(tmp_path / "b", FLAT | {"c.py": ""})).sha256


@pytest.mark.parametrize("make", [archive, tar])
@pytest.mark.parametrize("name", ["../adapters.py", "a/../../a.py", "/adapters.py", "C:\\a.py", "..\\a.py", "//h/a.py"])
def test_paths_that_lead_out(make: type, name: str, tmp_path: Path) -> None:
    path = make(tmp_path, FLAT | {name: ""})
    with pytest.raises(Refused, match="expected paths inside the submission"):
        take_in(path)
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO, stat.S_IFSOCK])
def test_links_and_devices_in_an_archive_are_left_out(kind: int, tmp_path: Path) -> None:
    info = zipfile.ZipInfo("old/link.py")
    info.external_attr = (kind | 0o777) << 16
    with zipfile.ZipFile(archive(tmp_path, FLAT), "a") as out:
        out.writestr(info, "/etc/passwd")
    taken = take_in(tmp_path / "handed-in.zip")
    assert (set(taken.files), taken.remarks) == (set(FLAT), (LEFT_OUT,))


def test_links_in_a_folder_are_left_out(tmp_path: Path) -> None:
    (write_files(tmp_path, FLAT) / "old").mkdir()
    (tmp_path / "old" / "link.py").symlink_to("/etc/passwd")
    (tmp_path / "data").symlink_to("/etc/passwd")
    (tmp_path / "loop").symlink_to(tmp_path)
    taken = take_in(tmp_path)
    assert (set(taken.files), taken.remarks) == (set(FLAT), (LEFT_OUT,))


def test_adapters_that_are_a_link(tmp_path: Path) -> None:
    (write_files(tmp_path / "folder", {"nn.py": ""}) / "adapters.py").symlink_to("/etc/passwd")
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as out:
        out.add(tmp_path / "folder" / "adapters.py", "adapters.py")
    for name in ("folder", "a.tar.gz"):
        with pytest.raises(Refused, match=r"expected adapters.py, .*; 'adapters.py' is a link or a device; put"):
            take_in(tmp_path / name)


@pytest.mark.parametrize("place", ["tests/adapters.py", "src/adapters.py", "adapters.py"])
@pytest.mark.parametrize("done", [DONE, "from nn import run_softmax\n", "import nn\nrun_softmax = nn.softmax\n"])
def test_of_several_adapters_those_that_are_written_count(place: str, done: str, tmp_path: Path) -> None:
    files = dict.fromkeys(["adapters.py", "tests/adapters.py", "src/adapters.py"], STUB) | {place: done, "nn.py": ""}
    taken = take_in(write_files(tmp_path, files))
    assert taken.files[place] == done.encode()
    assert taken.adapters == ("tests.adapters" if place.startswith("tests") else "adapters")
    assert ("adapters.py" in taken.files) == (place != "src/adapters.py")  # it would be imported first
    (remark,) = taken.remarks
    assert remark.startswith(f"graded with {place!r} (1 functions written), not with '")
    assert "adapters.py' (0 written)" in remark


LEFT_OUT_BY_NAME = (".git/hook.py", ".venv/lib/x.py", "venv/x.py", "data/train.txt", "a.ipynb", "x.so")
# Its modules are imported by the package's name, or without it; a report beside it is no code.
PACKAGE = {"src/cs336_basics/adapters.py": DONE, "src/cs336_basics/nn/functional.py": "", "report.pdf": "%PDF"}


@pytest.mark.parametrize(
    ("files", "taken"),
    [
        (below("assignment1/", CS336) | {"assignment2/model.py": ""}, {*CS336}),
        ({"handout/adapters.py": STUB, "mine/adapters.py": DONE, "mine/nn.py": ""}, {"adapters.py", "nn.py"}),
        (FLAT | {"adapters.py": IMPORTS, "functional.py": ""}, {*FLAT, "functional.py"}),
        (FLAT | dict.fromkeys(LEFT_OUT_BY_NAME, ""), {*FLAT}),
        (FLAT | {"zeros.bin": "0" * (20 << 20)}, {*FLAT}),
        ({"src/adapters.py": DONE, "model.py": ""}, {"src/adapters.py", "model.py"}),
        (PACKAGE, {"adapters.py", "nn/functional.py", "cs336_basics/adapters.py", "cs336_basics/nn/functional.py"}),
    ],
    ids=["one folder down", "beside a handout", "with its folder", "other folders", "data", "in src", "a package"],
)
def test_what_is_taken_in(files: dict[str, str], taken: set[str], tmp_path: Path) -> None:
    assert set(take_in(archive(tmp_path, files)).files) == taken
    assert set(take_in(write_files(tmp_path / "folder", files)).files) == taken


@pytest.mark.parametrize("source", [*HOSTILE, "not " * 15_000 + "1", "\0", "def f(:", "#" * 70_000, "a=" * 30_000])
def test_adapters_that_no_parser_likes(source: str, tmp_path: Path) -> None:
    files = {"adapters.py": source, "tests/adapters.py": DONE}
    assert take_in(write_files(tmp_path, files)).adapters == "tests.adapters"


def test_a_folder_that_cannot_be_read_is_no_empty_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = os.scandir

    def scandir(path: str) -> object:
        if str(path).endswith("cs336_basics"):  # root may read everything
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    write_files(tmp_path, FLAT)
    (tmp_path / "cs336_basics").mkdir(exist_ok=True)
    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(PermissionError, match="cs336_basics"):
        take_in(tmp_path)


def test_a_bomb_by_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_SOURCE_BYTES", 100)
    for make in (write_files, archive, tar):
        with pytest.raises(Refused, match="hand in only your own code"):
            take_in(make(tmp_path, FLAT | {"big.py": "#" * 200}))


def test_a_bomb_by_another_compression(tmp_path: Path) -> None:
    """zipfile unpacks it whole, whatever is asked for, as it does with bzip2."""
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_LZMA) as out:
        out.writestr("adapters.py", "#" * (16 << 20))
    tracemalloc.start()
    with pytest.raises(Refused, match=r"'adapters.py' is neither stored nor deflated; make an ordinary zip archive"):
        take_in(tmp_path / "bomb.zip")
    assert tracemalloc.get_traced_memory()[1] < MIB
    tracemalloc.stop()


@pytest.mark.parametrize("claimed", [1, 8 << 20, 0xFFFF_FFFE])
def test_a_size_that_is_not_true(claimed: int, tmp_path: Path) -> None:
    path = archive(tmp_path, {"adapters.py": "#" * (64 << 20)})
    path.write_bytes(patched(path.read_bytes(), 24, claimed, "<I"))
    tracemalloc.start()
    with pytest.raises(Refused, match=rf"{READABLE}, but 'handed-in.zip' is damaged|hand in only your own code"):
        take_in(path)
    assert tracemalloc.get_traced_memory()[1] < 32 * MIB
    tracemalloc.stop()


def test_a_tar_bomb(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="expected an archive of at most 32 MiB when unpacked"):
        take_in(tar(tmp_path, {"zeros.bin": "\0" * (40 << 20)}))


def test_a_bomb_by_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_ENTRIES", 10)
    with pytest.raises(Refused, match="at most 10 files, got 22"):
        take_in(archive(tmp_path, FLAT | {f"{n}.txt": "" for n in range(20)}))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_the_same_name_twice(tmp_path: Path) -> None:
    with zipfile.ZipFile(archive(tmp_path, FLAT), "a") as out:
        out.writestr("adapters.py", "a = 2")
    with pytest.raises(Refused, match=r"has 'adapters.py' several times"):
        take_in(tmp_path / "handed-in.zip")


def patched(archive: bytes, offset: int, value: int, size: str = "<H") -> bytes:
    """Set a number at `offset` of each entry of the archive's directory."""
    data = bytearray(archive)
    at = data.find(b"PK\x01\x02")
    while at >= 0:
        struct.pack_into(size, data, at + offset, value)
        at = data.find(b"PK\x01\x02", at + 4)
    return bytes(data)


@pytest.mark.parametrize("make", [write_files, archive])
@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"main.py": ""}, f"{NO_ADAPTERS} 'main.py'; "),
        ({"a/b/c/adapters.py": DONE, "a/b/nn.py": ""}, f"{NO_ADAPTERS} 'a/b/c/adapters.py'; "),
        ({"my_adapter.py": DONE, "report.pdf": "%PDF"}, f"{NO_ADAPTERS} 'my_adapter.py'; there is a PDF; "),
        (below("a/", FLAT) | below("b/", FLAT), "expected one submission, but there are adapters in 'a/', 'b/'; "),
        (FLAT | {"a\n.py": ""}, NOT_TO_BE_SHOWN),
        (FLAT | {"\x1b[2J.py": ""}, NOT_TO_BE_SHOWN),
    ],
    ids=["another name", "too deep", "a PDF beside it", "two submissions", "line break", "escape"],
)
def test_a_refusal_says_what_to_hand_in(make: type, files: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(Refused, match=f"^{message}.*{INSTEAD}$") as caught:
        take_in(make(tmp_path, files))
    assert str(caught.value).count("put your code into") == 1


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        *((lambda data, end=end: data[:end], f"{READABLE}, but 'handed-in.zip' is damaged") for end in (10, 60, 120)),
        (lambda data: data[:45] + bytes([data[45] ^ 0xFF]) + data[46:], READABLE),
        (lambda data: data.replace("\u00e9\u00e9".encode(), b"\xff" * 4), f"{READABLE}, but 'handed-in.zip' is"),
        (lambda data: patched(data, 8, 1), "but 'adapters.py' is encrypted; make the archive without a password"),
    ],
)
def test_a_spoilt_archive(spoil: Callable[[bytes], bytes], message: str, tmp_path: Path) -> None:
    path = archive(tmp_path, FLAT | {"\u00e9\u00e9.py": ""})
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(Refused, match=message):
        take_in(path)


@pytest.mark.parametrize("make", [archive, tar])
def test_a_folder_with_an_archive_inside(make: type, tmp_path: Path) -> None:
    (tmp_path / "lovelaceada").mkdir()
    make(tmp_path / "lovelaceada", below("one/", FLAT))
    taken = take_in(tmp_path / "lovelaceada")
    assert (taken.name, set(taken.files)) == ("lovelaceada", set(FLAT))


def test_a_zip_with_one_zip_inside_is_that_zip(tmp_path: Path) -> None:
    inner = archive(tmp_path, below("one/", FLAT)).rename(tmp_path / "submission.zip").read_bytes()
    path = tmp_path / "outer.ZIP"
    with zipfile.ZipFile(path, "w") as out:
        out.writestr("homework\\submission.zip", inner)
        out.writestr("__MACOSX/homework/._submission.zip", b"of the Finder")
        out.writestr("homework/._submission.zip", b"of the Finder")
        out.writestr("homework/report.pdf", b"")
    taken = take_in(path)
    assert (taken.name, set(taken.files)) == ("outer.ZIP", set(FLAT))
    with zipfile.ZipFile(path, "a") as out:
        out.writestr("homework/other.zip", inner)
    said = f"file; there is 'homework/other.zip'; there is 'homework/submission.zip'; there is a PDF; {INSTEAD}"
    with pytest.raises(Refused, match=said):
        take_in(path)
    with zipfile.ZipFile(path, "a") as out:
        out.writestr("adapters.py", "x = 1")
    assert set(take_in(path).files) == {"adapters.py"}


@pytest.mark.parametrize("depth", [2, 3])
def test_a_zip_in_zips_in_a_zip_is_not_unpacked(depth: int, tmp_path: Path) -> None:
    path = archive(tmp_path, FLAT)
    for _ in range(depth):
        archive(tmp_path, {"inner.zip": path.read_bytes()})
    with pytest.raises(Refused, match=f"got no Python file; there is 'inner.zip'; {INSTEAD}"):
        take_in(path)


def test_a_zip_inside_that_is_too_large_or_damaged_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = archive(tmp_path, FLAT).read_bytes()
    for data, message in ((inner[:60], "is damaged or is not a zip archive"), (inner, "at most .* when unpacked")):
        with pytest.raises(Refused, match=f"{message}.*{INSTEAD}"):
            take_in(archive(tmp_path, {"inner.zip": data}))
        monkeypatch.setattr(reading, "MAX_UNPACKED_BYTES", 100)


@pytest.mark.parametrize("make", [write_files, archive, tar])
@pytest.mark.parametrize("name", ["Adapters.py", "tests/ADAPTERS.py", "one/ADAPTERS.py"])
def test_adapters_in_other_letters_are_taken_where_there_are_no_others(make: type, name: str, tmp_path: Path) -> None:
    taken = take_in(make(tmp_path / "x" if make is write_files else tmp_path, {name: "a = 1", "adapters_old.py": ""}))
    assert taken.files[f"{taken.adapters.replace('.', '/')}.py"] == b"a = 1"
    assert taken.remarks == (f"'{name}' counts as adapters.py: write its name in small letters",)


def test_adapters_in_other_letters_are_no_rivals(tmp_path: Path) -> None:
    taken = take_in(archive(tmp_path, {"adapters.py": "a = 1", "Adapters.py": "a = 2"}))
    assert (taken.files["adapters.py"], taken.remarks) == (b"a = 1", ())


def test_of_several_files_one_may_be_adapters_in_other_letters(tmp_path: Path) -> None:
    write_files(tmp_path, {"a_1.py": "a = 1", "b_2.py": ""})
    files = {"Adapters.py": tmp_path / "a_1.py", "model.py": tmp_path / "b_2.py"}
    assert take_in(tmp_path / "a", files).files == {"adapters.py": b"a = 1", "model.py": b""}


@pytest.mark.parametrize("content", [b"", b"text", b"\x1f\x8b" + bytes(100), bytes(1024)])
def test_a_tar_that_is_none(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.tgz").write_bytes(content)
    with pytest.raises(Refused, match=r"a tar archive that can be read, but 'a.tgz' is damaged|expected adapters.py"):
        take_in(tmp_path / "a.tgz")


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
def test_what_is_no_code_is_told_what_to_hand_in(name: str, kind: str, tmp_path: Path) -> None:
    write_files(tmp_path, {name: "{}"})
    with pytest.raises(Refused, match=f"expected Python code, got {kind}; {INSTEAD}"):
        take_in(tmp_path / name)
    with pytest.raises(Refused, match=f"got no Python file; there is {kind}; {INSTEAD}"):
        take_in(tmp_path)


def test_what_is_no_archive_or_not_there(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    for name, got in (("a.txt", "'a.txt' is damaged or is not a zip archive"), ("x", "a path where nothing is")):
        with pytest.raises(Refused, match=f" {got}; {INSTEAD}$"):
            take_in(tmp_path / name)


@pytest.mark.parametrize(
    ("line", "modules"),
    [
        ("from torch.func import functional_call", []),
        ("def checks(x): return x.exp()  # the optimum", []),
        ("import einx", ["einx"]),
        ("from beartype import beartype", ["beartype"]),
        ("from torch.utils.checkpoint import checkpoint", ["torch._dynamo"]),
        ("from torch import func, nn\ngradient = func.grad(f)", ["torch._dynamo"]),
        ("class AdamW(torch.optim.Optimizer):", ["torch._dynamo"]),
        ("@torch.compiler.disable", ["torch._dynamo"]),
    ],
)
def test_what_it_may_import_that_takes_seconds(line: str, modules: list[str]) -> None:
    taken_in = submission.Submission("x", {"adapters.py": b"import torch", "mine.py": line.encode()}, "adapters")
    assert taken_in.slow_imports == modules


def test_what_the_course_gives_takes_no_seconds_to_import() -> None:
    assert take_in(ROOT).slow_imports == []
