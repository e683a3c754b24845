"""Never come back, in Python.

plain: hung
report: no answer within
"""


def run_softmax(in_features, dim):
    while True:
        pass
