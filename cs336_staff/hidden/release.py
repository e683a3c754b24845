"""The release of the hidden suite: its secret, and the weights of its tests."""

import hmac
import tomllib
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
SECRET = FOLDER / "secret.txt"  # git ignores it
REHEARSAL = (
    "REHEARSAL: the hidden inputs come from the example secret in release.toml, which anyone can read. "
    "Run `cs336 staff fixtures --new-secret` before you grade a class."
)


@dataclass(frozen=True)
class Release:
    """What `release.toml` and `secret.txt` state.

    Args:
        secret: where every hidden input comes from.
        rehearsal: whether that is the example, since there is no `secret.txt`.
        weights: for each problem, the weight of each of its hidden tests.
    """

    secret: str
    rehearsal: bool
    weights: dict[str, dict[str, float]]

    def seed(self, name: str) -> int:
        """The seed of what has this name: whoever knows some seeds knows no other one, and not the secret."""
        return int.from_bytes(hmac.digest(self.secret.encode(), name.encode(), "sha256")[:7])


def load_release() -> Release:
    stated = tomllib.loads((FOLDER / "release.toml").read_text(encoding="utf-8"))
    rehearsal = not SECRET.exists()
    secret = stated["example_secret"] if rehearsal else SECRET.read_text(encoding="utf-8").strip()
    return Release(secret, rehearsal, stated["weights"])
