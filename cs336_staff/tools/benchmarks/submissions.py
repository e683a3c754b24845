"""Submissions to measure with: the solved adapters, and the same with a mistake."""

import shutil
from pathlib import Path

# What each adds to the solved adapters; the first adds nothing.
MISTAKES = (
    "",
    "def run_softmax(in_features, dim):\n    return in_features.exp() / in_features.exp().sum(0, keepdim=True)",
    "def run_linear(d_in, d_out, weights, in_features):\n    return in_features @ weights",
    "right = run_scaled_dot_product_attention\n"
    "def run_scaled_dot_product_attention(Q, K, V, mask=None):\n    return right(Q * 2, K, V, mask)",
    "def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):\n    return in_query_or_key",
)


def write_submissions(root: Path, folder: Path, count: int) -> list[Path]:
    """`count` submissions, right and wrong ones in turn, each a folder of its own with a content of its own."""
    paths = []
    for i in range(count):
        path = folder / f"submission-{i:04}"
        shutil.copytree(root / "cs336_basics", path / "cs336_basics", ignore=shutil.ignore_patterns("__pycache__"))
        source = (root / "adapters.py").read_text(encoding="utf-8")
        (path / "adapters.py").write_text(f"{source}\n\n{MISTAKES[i % len(MISTAKES)]}\n# {i}\n", encoding="utf-8")
        paths.append(path)
    return paths
