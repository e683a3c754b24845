"""Print until the disk or the memory of the grader is full; here 8 MiB at each call.

plain: flooded
report: the answer is wrong
"""


def run_softmax(in_features, dim):
    print("x" * (8 << 20))
    return in_features * 0
