"""Fingerprints of a submission, by copydetect: k-grams of tokens in which all names are alike.

Schleimer, Wilkerson and Aiken, "Winnowing: Local Algorithms for Document Fingerprinting", SIGMOD 2003, but no gram is
left out: which ones winnowing picks would follow the seed of Python's hashes, which is another one in each process.
"""

import io
import json
import multiprocessing
import resource
from collections.abc import Collection, Iterable, Mapping
from hashlib import sha256
from multiprocessing.connection import Connection

import numpy as np
from copydetect import CodeFingerprint
from copydetect.utils import filter_code, hashed_kgrams
from pygments.lexers import PythonLexer
from pygments.token import Token

NOISE, WINDOW = 15, 1  # what is shorter than so many characters is not found
MAX_SOURCE = 1 << 17  # characters of a submission
CPU_SECONDS, MEMORY_BYTES = 5, 1 << 30  # for that: a small file can cost a reader much, or end it
RULE = f"\n{'=' * NOISE}\n"  # between files: what comes before one belongs to no fingerprint of the other
NOT_CODE = (Token.Comment, Token.Text, Token.Literal.String.Doc)


class Unreadable(Exception):
    """A submission cannot be read in the time and memory allowed."""


def fingerprints(sources: Mapping[str, bytes], given: Collection[int]) -> tuple[str, CodeFingerprint]:
    """Read a submission, in a process that it may end.

    Args:
        sources: by name of the file.
        given: hashes that count nothing.

    Returns:
        A hash of the code without comments and white space, and its fingerprints.

    Raises:
        Unreadable: it takes too much.
    """
    source = "".join(f"# {file}{RULE}{sources[file].decode(errors='replace')}{RULE}" for file in sorted(sources))
    if len(source) >= MAX_SOURCE:
        raise Unreadable("too large to be compared")
    fork = multiprocessing.get_context("fork")
    receive, send = fork.Pipe(duplex=False)
    child = fork.Process(target=_read, args=(send, source))
    child.start()
    send.close()
    try:
        hash, tokens, offsets = json.loads(receive.recv_bytes())
    except EOFError:
        raise Unreadable("cannot be compared: reading it takes too much time or memory") from None
    finally:
        child.join()
    found = CodeFingerprint("", NOISE, WINDOW, np.array([*given]), filter=False, fp=io.StringIO(tokens))
    found.raw_code, found.offsets = source, np.array(offsets)
    return hash, found


def hashes_of(sources: Iterable[str]) -> set[int]:
    """Compute all the hashes that code of our own could have."""
    tokens = (filter_code(RULE + source + RULE, "", "python")[0] for source in sources)
    return {int(hash) for code in tokens for hash in hashed_kgrams(code, NOISE)}


def _read(pipe: Connection, source: str) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    tokens, offsets = filter_code(source, "", "python")
    code = "\n".join(text for kind, text in PythonLexer().get_tokens(source) if not any(kind in no for no in NOT_CODE))
    pipe.send_bytes(json.dumps([sha256(code.encode(errors="replace")).hexdigest(), tokens, offsets.tolist()]).encode())
