"""The code, the environment and the visible files of the zygote, from which workers are forked."""

import os
import shutil
from pathlib import Path

from whichline.engine.assignment import FILE_NAME, PROBLEMS, get_root
from whichline_grader.paths import ENGINE, GRADER, STAFF

# Nothing else of /usr is visible, unless the interpreter lies there.
LIBRARIES = ("/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/local/lib")
BESIDE_USR = ("/lib", "/lib32", "/lib64", "/etc/ld.so.cache")  # some are links into /usr
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
ENVIRONMENT = {
    "LANG": "C.UTF-8",
    "HOME": "/nonexistent",
    "USER": "student",  # otherwise torch looks for a name in /etc/passwd
    "CUDA_VISIBLE_DEVICES": "",
    "PYTHONHASHSEED": "0",  # fixes the order of sets, which some feedback depends on
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TORCH_COMPILE_DISABLE": "1",  # no compilers: a decorated function runs as it is
    "PYTORCH_JIT": "0",  # the same for TorchScript, which the watch cannot see into
    "TORCHINDUCTOR_CACHE_DIR": "/",  # torch requires a folder but writes nothing into it
    # Large tensors get pages of their own and return them at once. Otherwise small ones lie between them, and a program
    # that needs 24 MiB at a time maps 150.
    "MALLOC_MMAP_THRESHOLD_": str(2 << 20),
    "JAXTYPING_DISABLE": "1",  # a student's own wrong annotation costs no points
}
# `lock_in_zygote` comes before torch is imported: a process with threads gets no namespace.
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


def copy_worker(folder: Path, diagnosing: bool) -> None:
    """Copy the only files of ours that the sandbox sees; they are deleted once the zygote has read them."""
    root = get_root()
    copied = [(GRADER.parent, GRADER / "sandbox" / "inside"), (ENGINE.parent, ENGINE / "rules")]
    if diagnosing:
        copied += [(ENGINE.parent, ENGINE), *((root, root / name) for name in (PROBLEMS, "tests", "fixtures"))]
    for place, copy in copied:
        for source in copy.rglob("*"):
            below = source.relative_to(place)
            if source.suffix in (".py", ".safetensors") and STAFF not in below.parts:
                (folder / below).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, folder / below)
    for package in (ENGINE.name, GRADER.name, f"{GRADER.name}/sandbox"):
        (folder / package / "__init__.py").touch()  # otherwise Python would find the installed packages
    shutil.copyfile(root / FILE_NAME, folder / FILE_NAME)  # the rules are read from it
    for path in (folder.parent, folder, *folder.rglob("*")):
        path.chmod(0o755)


def command_bubblewrap(visible: list[str], hidden: list[str]) -> list[str]:
    command = ["bwrap", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    command += ["--hostname", "sandbox", "--as-pid-1", "--new-session", "--cap-drop", "ALL"]
    # In a user namespace root would remain root outside, and no other user exists there.
    command += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"] if os.getuid() == 0 else ["--unshare-user"]
    for path in [*visible, *filter(os.path.exists, BESIDE_USR)]:
        for folder in reversed(Path(path).parents[:-1]):  # otherwise bwrap makes folders that others cannot enter
            command += ["--dir", str(folder)]
        if os.path.islink(path):
            command += ["--symlink", os.readlink(path), path]
        else:
            command += ["--ro-bind", path, path]
    for path in hidden:
        command += ["--tmpfs", path, "--remount-ro", path]
    # /dev and /dev/shm are separate file systems; writable, they would be a channel between submissions.
    command += ["--proc", "/proc", "--dev", "/dev"]
    return [*command, "--remount-ro", "/dev/pts", "--remount-ro", "/dev", "--remount-ro", "/proc", "--remount-ro", "/"]
