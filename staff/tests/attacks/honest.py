"""What an honest student hands in: beside every attack it must get what it earned."""


def run_softmax(in_features, dim):
    e = (in_features - in_features.amax(dim, keepdim=True)).exp()
    return e / e.sum(dim, keepdim=True)
