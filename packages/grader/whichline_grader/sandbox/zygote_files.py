"""What the process that submissions are forked from is started with: its code, its environment, what it may see."""

import os
import shutil
from pathlib import Path

from whichline.engine.assignment import FILE_NAME, PROBLEMS, this_root
from whichline_grader.paths import ENGINE, GRADER, STAFF

# Of /usr nothing else, unless the interpreter lies there.
LIBRARIES = ("/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/local/lib")
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
ENVIRONMENT = {
    "LANG": "C.UTF-8",
    "HOME": "/nonexistent",
    "USER": "student",  # else torch looks for one in /etc/passwd
    "CUDA_VISIBLE_DEVICES": "",
    "PYTHONHASHSEED": "0",  # the order of sets, and so the words of some feedback
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TORCH_COMPILE_DISABLE": "1",  # it runs compilers; without it the decorated function is called as it is
    "PYTORCH_JIT": "0",  # the same for TorchScript, which does not know the functions that watch
    "TORCHINDUCTOR_CACHE_DIR": "/",  # torch insists on a folder, and writes nothing into it
    # Large tensors get pages of their own, given back at once. Else small ones that are kept lie between them, and a
    # program that needs 24 MiB at a time maps 150.
    "MALLOC_MMAP_THRESHOLD_": str(2 << 20),
    "JAXTYPING_DISABLE": "1",  # a student's own wrong annotation costs no points
}
# Before it imports torch, since a process with threads gets no namespace.
MAIN = """
import _sitebuiltins, builtins, gc, json, sys
gc.disable()
controls, settings = map(json.loads, sys.argv[1:])
sys.argv = [""]
builtins.exit = builtins.quit = _sitebuiltins.Quitter("exit", "Ctrl-D")  # which -S leaves out
sys.path.insert(0, settings["worker"])
sys.path.extend(settings["packages"])
from whichline_grader.sandbox.inside.own_root import lock_in_zygote
if settings["confined"]:
    given = (settings[key] for key in ("readable", "hidden", "packages", "worker", "place"))
    settings["layers"] += lock_in_zygote(*given)
from whichline_grader.sandbox.inside.zygote import main
main(controls, settings)
"""


def copy_worker(folder: Path, advised: bool) -> None:
    """The only files of ours that the sandbox sees; they are gone once the zygote has read them."""
    root = this_root()
    copied = [(GRADER.parent, GRADER / "sandbox" / "inside"), (ENGINE.parent, ENGINE / "rules")]
    if advised:
        copied += [(ENGINE.parent, ENGINE), *((root, root / name) for name in (PROBLEMS, "tests", "fixtures"))]
    for place, copy in copied:
        for source in copy.rglob("*"):
            below = source.relative_to(place)
            if source.suffix in (".py", ".safetensors") and STAFF not in below.parts:
                (folder / below).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, folder / below)
    for package in (ENGINE.name, GRADER.name, f"{GRADER.name}/sandbox"):
        (folder / package / "__init__.py").touch()  # or those that are installed would be found
    shutil.copyfile(root / FILE_NAME, folder / FILE_NAME)  # says what the rules forbid
    for path in (folder.parent, folder, *folder.rglob("*")):
        path.chmod(0o755)


def find_libraries() -> list[str]:
    return [path for path in ("/lib", "/lib32", "/lib64", "/etc/ld.so.cache") if os.path.exists(path)]


def command_bubblewrap(visible: list[str], hidden: list[str]) -> list[str]:
    command = ["bwrap", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    command += ["--hostname", "sandbox", "--as-pid-1", "--new-session", "--cap-drop", "ALL"]
    # In a user namespace root would stay what it is outside, and there is no other user.
    command += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"] if os.getuid() == 0 else ["--unshare-user"]
    for path in [*visible, *find_libraries()]:
        for folder in reversed(Path(path).parents[:-1]):  # else it makes those that others cannot pass
            command += ["--dir", str(folder)]
        if os.path.islink(path):
            command += ["--symlink", os.readlink(path), path]
        else:
            command += ["--ro-bind", path, path]
    for path in hidden:
        command += ["--tmpfs", path, "--remount-ro", path]
    # /dev and /dev/shm are file systems of their own, and would be a channel between submissions.
    command += ["--proc", "/proc", "--dev", "/dev"]
    return [*command, "--remount-ro", "/dev/pts", "--remount-ro", "/dev", "--remount-ro", "/proc", "--remount-ro", "/"]
