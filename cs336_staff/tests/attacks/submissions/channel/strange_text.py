"""Raise an exception whose name and text hold lone surrogates, terminal escapes, HTML and Markdown.

plain: refused
report: <script>
"""

NAME = "\ud800\x1b[2J\u202e```\n"


def run_softmax(in_features, dim):
    raise type(NAME[1:], (Exception,), {})(NAME + "<script>alert(1)</script>\n```\n# 15.0 of 15 points\n" + NAME)
