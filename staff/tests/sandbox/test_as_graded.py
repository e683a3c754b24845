"""What `cs336 submit` refuses is what the sandbox refuses, and both say so in the same words."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from staff.tools.student import Student
from whichline.engine.errors import StudentRaised
from whichline.engine.failure import describe
from whichline.engine.result import Check

from .conftest import Run

pytestmark = pytest.mark.slow
LAYERS = ("bubblewrap",)

# What the second line of a file does when it is imported, and what is said of it.
USES = {
    "import logging\nlogging.basicConfig(filename='attention.log')": "uses attention.log",
    "import json\njson.load(open('config.json'))": "uses config.json",
    "import pathlib\npathlib.Path(__file__).with_name('table.txt').read_text()": "uses table.txt",
    "import pathlib\npathlib.Path('checkpoints').mkdir(exist_ok=True)": "uses checkpoints",
    "import os\nopen(os.devnull, 'w')": "uses null",
    "import os\nos.remove('attention.log')": "uses attention.log",
    "import numpy\nnumpy.save('weights.npy', numpy.ones(2))": "uses weights.npy",
    "import torch\ntorch.load('weights.pt')": "uses weights.pt",
    "\nopen(OUTSIDE)": "uses outside.txt",
    "import subprocess, sys\nsubprocess.check_call([sys.executable, '-m', 'pip', 'install', 'einx'])": "cannot do this",
    "import subprocess\nsubprocess.run(['nvidia-smi'], capture_output=True)": "cannot do this",
    "import os\nos.fork()": "cannot do this",
    "import os\nos.execv('/bin/true', ['true'])": "cannot do this",
    "import urllib.request\nurllib.request.urlretrieve('https://localhost/words.txt', 'words.txt')": "cannot do this",
    "import requests\nrequests.get('https://localhost/vocabulary.txt')": "cannot do this",
    "import socket\nsocket.create_connection(('127.0.0.1', 9))": "cannot do this",
    "import asyncio\nasyncio.run(asyncio.sleep(0))": "cannot do this",
}
FINE = (
    "import logging\nlogging.basicConfig(level=logging.INFO); logging.info('imported')",
    "import logging\ntry: logging.basicConfig(filename='attention.log')\nexcept OSError: pass",
    "import os\nopen(os.devnull)",
    "import inspect\ndef f(): pass\ninspect.getsource(f)",
    "import warnings\nwarnings.warn('a line of this file is printed with it')",
    "import importlib.metadata\nimportlib.metadata.version('torch')",
    "import matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.savefig('weights.png')",
    "import platform\nplatform.uname(); platform.processor()",
    "import tempfile\ntempfile.gettempdir()",
    "import concurrent.futures\nconcurrent.futures.ThreadPoolExecutor().submit(abs, 1).result()",
    "from tqdm import tqdm\nlist(tqdm(range(2)))",
    "import torch\n@torch.compile\ndef f(x): return x + 1\nf(torch.ones(2))",
    "import torch\n@torch.jit.script\ndef f(x): return x + 1\nf(torch.ones(2))",
    "import torch\ntorch.einsum('ij,jk,kl->il', *[torch.ones(2, 2)] * 3); torch.cuda.is_available()",
)
FILES = {f"cs336_basics/file_{number}.py": source for number, source in enumerate((*USES, *FINE))}
WHY = "in grading there are no files, network or processes"
EXPECTED = [f"cs336_basics/file_{number}.py:2 {said}: {WHY}" for number, said in enumerate(USES.values())]
EXPECTED += [""] * len(FINE)

# Imports each file where `submit` runs the tests, and prints what is said of it.
AT_HOME = """
import importlib, json, sys, warnings
from pathlib import Path
from whichline.checking.as_graded import refuse_as_in_grading
from whichline.engine.failure import describe
from whichline.rules.settings import take_compilers_away
root = Path.cwd()
sys.path.insert(0, str(root))
take_compilers_away()
refuse_as_in_grading(root)
warnings.simplefilter("ignore")
said = []
for number in range(int(sys.argv[1])):
    try:
        importlib.import_module(f"cs336_basics.file_{number}")
        said.append("")
    except Exception as error:
        said.append(describe(error, root).headline)
print(json.dumps(said))
"""


def test_in_the_sandbox(run: Run, tmp_path: Path) -> None:
    files = {name: source.replace("OUTSIDE", "'/etc/outside.txt'") for name, source in FILES.items()}
    call = "def run_softmax(in_features, dim): importlib.import_module(f'cs336_basics.file_{dim}')\n"
    adapters = run({"adapters.py": f"import importlib\n{call}", **files})
    said = []
    for number in range(len(FILES)):
        try:
            adapters.run_softmax(torch.zeros(2), number)
            said.append("")
        except StudentRaised as error:
            failure = describe(error, tmp_path)
            said.append(failure.headline)
            assert failure.check is Check.CALL
            assert f"cs336_basics/file_{number}.py:2, in <module>" in failure.details
    assert said == EXPECTED


def test_at_home(tmp_path: Path) -> None:
    (tmp_path / "outside.txt").touch()
    (tmp_path / "root").mkdir()
    student = Student(tmp_path / "root")
    for name, source in FILES.items():
        (student.folder / name).write_text(source.replace("OUTSIDE", repr(str(tmp_path / "outside.txt"))))
    command = [sys.executable, "-c", AT_HOME, str(len(FILES))]
    finished = subprocess.run(command, cwd=student.folder, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout.splitlines()[-1]) == EXPECTED
