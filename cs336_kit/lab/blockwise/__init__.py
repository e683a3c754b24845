"""Blockwise attention that is quick, too: what `cs336 bench` measures the student's own against.

    attention.py    the function, and its gradient
    forward.py      the online softmax, over the blocks in which something is visible
    threads.py      the work shared out among threads
    plan.py         how large a block is, which blocks are visible, and the order of the work
    heads.py        which heads are computed together
    masks.py        masks that are never held as a matrix
    arguments.py    what is refused

Its answer is that of the two loops of the handout, up to rounding. What makes it quick: it skips what a mask hides,
looks for a maximum only where scores may be large, writes every block to the same memory, and gives each thread blocks
of queries of its own.
"""
