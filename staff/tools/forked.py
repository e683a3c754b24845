"""A module run as `python -m` runs it, in a fork of a process that has imported torch: a second and a half less.

`python -c "from staff.tools.forked import wait; wait()"` is that process. A line on its standard input is a JSON object
with the folder, the environment, the module with its arguments, and its standard files; the answers are a line with
its id, and when that is asked for, one with its exit status. What the module starts to run the tests of an assignment
is forked in the same way.
"""

import atexit
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import TemporaryFile
from traceback import print_exc
from typing import Any

IMPORTED = (  # plugins of pytest are not among it, which pytest wants to import itself
    *("torch", "beartype", "einops", "numpy", "pytest", "rich.console", "safetensors.torch"),
    *("whichline.checking.runner", "whichline.checking.short_failures", "whichline.locate.explain"),
)
SECONDS = 1800  # after which a module hangs, and is no longer just slow on a busy machine


def run_forked(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> CompletedProcess[bytes]:
    """Run a module with arguments. Of what Python reads at its start, the environment may have PYTHONIOENCODING."""
    with TemporaryFile() as out, TemporaryFile() as err:
        files = [f"/proc/{os.getpid()}/fd/{file.fileno()}" for file in (out, err)]
        status = wait_for(begin_forked(command, folder, environment, [os.devnull, *files]))
        out.seek(0)
        err.seek(0)
        return CompletedProcess([*command], status, out.read(), err.read())


def begin_forked(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], files: Sequence[str], terminal: bool = False
) -> int:
    """Begin to run a module on three standard files, which may be one terminal: the id of its process."""
    wanted = {"folder": str(folder), "environment": dict(environment), "command": command, "files": files}
    return _ask(wanted | {"terminal": terminal})


def wait_for(pid: int) -> int:
    """Wait for the end of such a process: its exit status."""
    return _ask({"ended": pid})


def _ask(wanted: Mapping[str, object]) -> int:
    process = _start()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(wanted).encode() + b"\n")
    process.stdin.flush()
    return int(process.stdout.readline())


@cache
def _start() -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", "from staff.tools.forked import wait; wait()"]
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # a test may have changed it
    return subprocess.Popen(command, env=own, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def wait() -> None:
    """Fork for each line until the input ends; the fork goes on as the module."""
    from whichline import quick_start  # here: whoever imports it looks for no garbage from then on

    for name in IMPORTED:
        __import__(name)
    quick_start.collect_garbage_again()
    for name in [name for name in sys.modules if name.partition(".")[0] == "staff"]:
        del sys.modules[name]  # a course has its own
    for name in ("jaxtyping", "whichline"):
        sys.modules[name].__doc__ = "PYTEST_DONT_REWRITE"  # or pytest warns that they are here before it
    for line in sys.stdin.buffer:
        wanted = json.loads(line)
        if pid := wanted.get("ended"):
            if not select.select([os.pidfd_open(pid)], [], [], SECONDS)[0]:
                os.kill(pid, signal.SIGKILL)
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
        elif os.fork() == 0:
            break
    else:
        return
    if wanted["terminal"]:
        os.setsid()  # the terminal that it opens next is its own
    files = [os.open(path, os.O_RDWR) for path in wanted["files"]]
    print(os.getpid(), flush=True)
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.chdir(wanted["folder"])
    os.environ.clear()
    os.environ.update(wanted["environment"])
    if wanted["terminal"]:
        sys.stdout, sys.stderr = (open(number, "w", buffering=1) for number in (1, 2))  # noqa: SIM115 (until the end)
    for stream in (sys.stdout, sys.stderr) if "PYTHONIOENCODING" in os.environ else ():
        stream.reconfigure(encoding=os.environ["PYTHONIOENCODING"])  # type: ignore[union-attr] (a TextIOWrapper)
    module, *arguments = wanted["command"]
    sys.argv = [module, *arguments]
    sys.path[0] = wanted["folder"]
    if module != "pytest":  # a plain suite's own process begins without what the tests have imported
        subprocess.Popen = _Popen
    status: Any = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        status = ended.code or 0
    _end(status)


def _end(status: Any) -> None:
    """End as Python does, but for taking torch apart, which takes as long as much of what is run."""
    threading._shutdown()  # type: ignore[attr-defined] (it is private, and waits for threads)
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        sys.exit(status)  # Python has words for it
    if not isinstance(status, int):
        print(status, file=sys.stderr, flush=True)
        status = 1
    os._exit(status & 0xFF)


class _Popen(subprocess.Popen):
    """Forks this process where Python would start, as `python -P -c`, and import torch."""

    def _execute_child(self, args: Any, *how: Any) -> None:
        if list(args[1:3]) != ["-P", "-c"]:
            return super()._execute_child(args, *how)  # type: ignore[misc] (it is private)
        cwd, pipes = how[4], how[9:15]
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setsid()
                os.dup2(pipes[0], 0)
                os.dup2(pipes[3], 1)
                os.closerange(3, 100)
                os.chdir(cwd)
                sys.argv = ["-c", *args[4:]]
                del sys.path[0]
                exec(args[3], {"__name__": "__main__"})  # noqa: S102 (our own code)
            except BaseException:
                print_exc()
            os._exit(1)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined] (it is private)
