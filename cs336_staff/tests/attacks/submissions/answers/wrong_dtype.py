"""Answer in float64 whatever the input is.

plain: forged
report: the answer has dtype float64, expected float32
"""


def run_softmax(in_features, dim):
    e = (in_features.double() - in_features.double().amax(dim, keepdim=True)).exp()
    return e / e.sum(dim, keepdim=True)
