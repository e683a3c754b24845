"""Take memory until there is no more; here 640 MiB.

plain: reached
report: M
"""


def run_softmax(in_features, dim):
    blocks = [b"x" * (1 << 26) for _ in range(10)]
    print("reached")
    return in_features * 0 + len(blocks)
