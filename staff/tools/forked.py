"""A module run as `python -m` runs it, in a fork of a process that has imported torch: a second and a half less.

`python -c "from staff.tools.forked import wait; wait()"` is that process. A line on its standard input is a JSON object
with the folder, the environment, the module with its arguments, and the files for what it prints; the answer is a line
with its exit status. What the module starts to run the tests of an assignment is forked in the same way.
"""

import json
import os
import runpy
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from traceback import print_exc
from typing import Any

IMPORTED = (  # pytest's plugins are not among it: pytest wants to import them itself
    "torch",
    "beartype",
    "einops",
    "numpy",
    "rich.console",
    "safetensors.torch",
)
SECONDS = 600  # that a module may take


def run_forked(
    command: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[bytes]:
    """Run a module with arguments. Of what Python reads at its start, the environment may have PYTHONIOENCODING."""
    process = _start()
    assert process.stdin is not None
    assert process.stdout is not None
    with TemporaryFile() as out, TemporaryFile() as err:
        files = [f"/proc/{os.getpid()}/fd/{file.fileno()}" for file in (out, err)]
        line = {"folder": str(folder), "environment": dict(environment), "command": command, "files": files}
        process.stdin.write(json.dumps(line).encode() + b"\n")
        process.stdin.flush()
        status = int(process.stdout.readline())
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess([*command], status, out.read(), err.read())


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
    quick_start.look_again()
    _forget_ours()
    for line in sys.stdin.buffer:
        wanted = json.loads(line)
        if (child := os.fork()) == 0:
            break
        if not select.select([os.pidfd_open(child)], [], [], SECONDS)[0]:
            os.kill(child, signal.SIGKILL)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    else:
        return
    for number, path in ((0, os.devnull), *enumerate(wanted["files"], 1)):
        os.dup2(os.open(path, os.O_RDWR), number)
    os.chdir(wanted["folder"])
    os.environ.clear()
    os.environ.update(wanted["environment"])
    for stream in (sys.stdout, sys.stderr) if "PYTHONIOENCODING" in os.environ else ():
        stream.reconfigure(encoding=os.environ["PYTHONIOENCODING"])  # type: ignore[union-attr] (a TextIOWrapper)
    module, *arguments = wanted["command"]
    sys.argv = [module, *arguments]
    sys.path[0] = wanted["folder"]
    subprocess.Popen = _Popen
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _forget_ours() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("staff", "whichline")]:
        del sys.modules[name]


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
                _forget_ours()
                exec(args[3], {"__name__": "__main__"})  # noqa: S102 (our own code)
            except BaseException:
                print_exc()
            os._exit(1)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined] (it is private)
