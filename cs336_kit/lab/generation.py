"""Writing with a language model, and how much quicker it is with the student's cache than without."""

import time
from dataclasses import dataclass

import torch

from cs336_kit.examination.experiment import use_one_thread
from cs336_kit.lab.bad_input import BadInput
from cs336_kit.lab.language_model import LONGEST, LanguageModel

TEMPERATURE = 0.5  # below 1, what is likely becomes more likely


@dataclass(frozen=True)
class Written:
    """A text of a model's.

    Args:
        text: the prompt and what follows it.
        seconds: that it took.
    """

    text: str
    seconds: float


@use_one_thread()
def write(model: LanguageModel, prompt: str, length: int, seed: int, with_cache: bool) -> Written:
    """Go on from `prompt` for so many characters: each is drawn from the logits, and then read in its turn.

    Without the cache the whole sequence is computed again for each of them.

    Raises:
        BadInput: the prompt has a character that the model does not know, or the text would be too long.
    """
    if len(prompt) + length > LONGEST:
        raise BadInput(f"the model reads and writes {LONGEST:,} characters at most, got {len(prompt) + length:,}")
    tokens, generator = model.encode(prompt), torch.Generator().manual_seed(seed)
    started = time.perf_counter()
    with torch.no_grad():
        logits, caches = model(tokens)
        for _ in range(length):
            next_token = torch.multinomial((logits[-1] / TEMPERATURE).softmax(-1), 1, generator=generator)
            tokens = torch.cat((tokens, next_token))
            logits, caches = model(next_token, caches) if with_cache else model(tokens)
    seconds = time.perf_counter() - started
    return Written("".join(model.characters[token] for token in tokens.tolist()), seconds)


def describe_cache(cached: Written, whole: Written, length: int) -> str:
    """Compare what was written with the cache and without, in a sentence."""
    if cached.text == whole.text:
        return (
            f"With your cache, {length} characters took {cached.seconds:.2f} s. Computing the whole sequence again for "
            f"each of them took {whole.seconds:.2f} s, {whole.seconds / cached.seconds:.1f} times as long."
        )
    pairs = zip(cached.text, whole.text, strict=True)
    place = next(number for number, (one, other) in enumerate(pairs) if one != other)
    return (
        f"Computed without the cache, the text is another one from character {place} on. It should be the same: "
        "`uv run pytest -k test_decoding` says what is wrong."
    )
