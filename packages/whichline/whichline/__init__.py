"""The tools that ship beside the assignment: the pytest plugin, the diagnosis and the command of the assignment."""

import importlib.util
import sys

if importlib.util.find_spec("torch") is None:
    sys.exit(f"{sys.executable} lacks the assignment's packages: put uv run before the command, as in uv run pytest")
