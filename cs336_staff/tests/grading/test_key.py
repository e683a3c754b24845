"""The key for grading again: what decides a verdict changes it, and words do not."""

from cs336_staff.grading.suite import without_words

SOURCE = '''
"""A module."""

def check(error, bound):
    """Fail if the error is too large."""
    # a comment
    if error > bound:
        raise ValueError(f"an error of {error}", "too large")
    return "a text that is returned"
'''


def test_words_do_not_change_it():
    for words in ("A module.", "Fail if the error is too large.", "a comment", "an error of", "too large"):
        assert words in SOURCE
        assert without_words(SOURCE.replace(words, "x")) == without_words(SOURCE)


def test_code_does():
    for old, new in (
        ("error > bound", "error >= bound"),
        ("ValueError", "TypeError"),
        ("returned", "given"),
        ("{error}", "{bound}"),
    ):
        assert without_words(SOURCE.replace(old, new)) != without_words(SOURCE)
