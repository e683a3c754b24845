"""Import this first: it ends the process with one line if the assignment's packages are missing."""

import sys
from importlib.util import find_spec

for name in ("torch", "einops", "jaxtyping", "numpy"):  # students may give these names to their own files
    if (found := find_spec(name)) is None:
        lacks = f"{sys.executable} lacks the assignment's packages"
        sys.exit(f"{lacks}: put uv run before the command, as in uv run pytest")
    if found.submodule_search_locations is None:  # it is no package
        sys.exit(f"your {name}.py hides the package {name}: rename it")
