"""Softmax in another floating-point type than its input."""

from cs336_staff.authoring.misconceptions.parts import in_softmax, softmax

ENTRIES = (
    in_softmax(
        "softmax-half-inside",
        "you computed in half precision",
        "How many digits does float16 keep? Where does your code make the tensor smaller than it came?",
        lambda x, dim: softmax(x.half(), dim).half().to(x.dtype),
        sign="imprecise",
    ),
    in_softmax(
        "softmax-float32-out",
        "your answer is float32 whatever the input is",
        "Which dtype did the input have, and where does yours change for good?",
        lambda x, dim: softmax(x.float(), dim),
    ),
    in_softmax(
        "softmax-float64-out",
        "your answer is float64 whatever the input is",
        "Which dtype did the input have, and where does yours change for good?",
        lambda x, dim: softmax(x.double(), dim),
    ),
)
