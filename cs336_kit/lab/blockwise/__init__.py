"""Blockwise attention that is quick, too: what `cs336 bench` measures the student's own against.

    attention.py    the function, and its gradient
    forward.py      the online softmax, over the blocks in which something is visible
    plan.py         how large a block is, and which blocks are visible
    heads.py        which heads are computed together
    masks.py        masks that are never held as a matrix
    arguments.py    what is refused

Its answer is that of the two loops of the handout, up to rounding. What makes it quick: it skips what a mask hides,
looks for a maximum only where scores may be large, and writes every block to the same memory.
"""
