"""Writing with a language model, and how much quicker it is with the student's cache than without."""

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from cs336_kit.examination.experiment import use_one_thread
from cs336_kit.lab.bad_input import BadInput
from cs336_kit.lab.language_model import LONGEST, LanguageModel

TEMPERATURE = 0.5  # below 1, what is likely becomes more likely
CLOSE = 1e-3  # of the largest logit: what rounding may make of two ways to compute the same


@dataclass(frozen=True)
class Written:
    """A text of a model's.

    Args:
        text: the prompt and what follows it.
        logits: those that each character behind the prompt was drawn from.
        seconds: that it took.
    """

    text: str
    logits: Tensor
    seconds: float


@use_one_thread()
def write(model: LanguageModel, prompt: str, length: int, seed: int) -> Written:
    """Go on from `prompt` for so many characters, each drawn from the logits, and then read with the cache.

    Raises:
        BadInput: the prompt has a character that the model does not know, or the text would be too long.
    """
    if len(prompt) + length > LONGEST:
        raise BadInput(f"the model reads and writes {LONGEST:,} characters at most, got {len(prompt) + length:,}")
    new, generator = model.encode(prompt), torch.Generator().manual_seed(seed)
    started, all_logits, text = time.perf_counter(), [], prompt
    with torch.no_grad():
        logits, caches = model(new)
        for _ in range(length):
            all_logits.append(logits[-1])
            new = torch.multinomial((logits[-1] / TEMPERATURE).softmax(-1), 1, generator=generator)
            text += model.characters[int(new)]
            logits, caches = model(new, caches)
    return Written(text, torch.stack(all_logits), time.perf_counter() - started)


@use_one_thread()
def write_again(model: LanguageModel, written: Written) -> Written:
    """Write the same without a cache: all of it is computed again for each character behind the prompt."""
    tokens, length = model.encode(written.text), len(written.logits)
    started = time.perf_counter()
    with torch.no_grad():
        logits = [model(tokens[:end])[0][-1] for end in range(len(tokens) - length, len(tokens))]
    return Written(written.text, torch.stack(logits), time.perf_counter() - started)


def find_difference(cached: Written, whole: Written) -> int | None:
    """Number the first character whose logits differ by more than rounding explains."""
    gap = (cached.logits - whole.logits).abs().amax(-1)
    wrong = (~(gap <= CLOSE * whole.logits.abs().max())).nonzero()
    return int(wrong[0]) + len(whole.text) - len(whole.logits) if len(wrong) else None


def describe_cache(cached: Written, whole: Written, place: int | None) -> str:
    """Compare what was written with the cache and without, which differ from a `place` on, in a sentence."""
    if place is None:
        characters, times = len(cached.logits), whole.seconds / cached.seconds
        return (
            f"With your cache, {characters} characters took {cached.seconds:.2f} s. Computing the whole sequence again "
            f"for each of them took {whole.seconds:.2f} s, {times:.1f} times as long."
        )
    return (
        f"Computed without the cache, the logits for character {place} are different. They should be the same: "
        "`uv run pytest -k test_decoding` says what is wrong."
    )
