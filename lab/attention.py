"""The student's attention, and calls of it from a file or a notebook, with what PyTorch answers to them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, jaxtyped
from rich.console import RenderableType
from rich.text import Text
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from whichline.checking.board import Lines
from whichline.engine.case import GRADIENT, Case
from whichline.engine.compare import WrongAnswer, check_shape, name_dtype
from whichline.lab import BadInput
from whichline.lab.report import report_call, report_inputs
from whichline.lab.student import Student

ADAPTER = "run_scaled_dot_product_attention"
NAMES = ("Q", "K", "V", "mask")
# The numbers 0 and 1 do not say what they mean, so both readings are given.
AS_BOOLEAN = "`mask.bool()` if yours is 1 where a query may attend, `mask == 0` if it is 0 there"
CONTRACT: dict[str, Any] = {
    "Q": Float[Tensor, "*#batch queries d_k"],
    "K": Float[Tensor, "*#batch keys d_k"],
    "V": Float[Tensor, "*#batch keys d_v"],
    "mask": Bool[Tensor, "*#batch #queries #keys"],
}


class Attention(Student):
    """The attention in the folder of the assignment; or a function of Q, K, V and a mask or None, in its place.

    Raises:
        click.ClickException: `adapters.py` cannot be imported, in the words that a failing test has for it.
    """

    def __init__(self, attention: Callable[..., Tensor] | None = None) -> None:
        super().__init__({ADAPTER: attention} if attention else None)

    def attention(
        self,
        Q: Float[Tensor, "... queries d_k"],
        K: Float[Tensor, "... keys d_k"],
        V: Float[Tensor, "... keys d_v"],
        mask: Bool[Tensor, "... #queries #keys"] | None = None,
    ) -> Float[Tensor, "... queries d_v"]:
        """Call `run_scaled_dot_product_attention` on copies, and return its answer with its gradients.

        Raises:
            click.ClickException: it raises an error, or gives something other than a tensor of the right shape.
        """
        with self.in_words():
            copies = (x if x is None else x.clone() for x in (Q, K, V, mask))
            answer = self.adapters.run_scaled_dot_product_attention(*copies)
            check_shape(answer, (*broadcast(Q, K, V, mask), Q.shape[-2], V.shape[-1]))
            if not answer.is_floating_point():
                came, expected = name_dtype(answer.dtype), name_dtype(Q.dtype)
                raise WrongAnswer(f"the answer has dtype {came}, expected {expected}, that of the inputs")
        return answer

    def weights(
        self,
        Q: Float[Tensor, "... queries d_k"],
        K: Float[Tensor, "... keys d_k"],
        mask: Bool[Tensor, "... #queries #keys"] | None = None,
    ) -> Float[Tensor, "... queries keys"]:
        """The weights that the student's attention gives to each key: its output when the values are the identity."""
        identity = torch.eye(K.shape[-2], dtype=Q.dtype, device=Q.device)
        return self.attention(Q, K, identity.expand(*broadcast(Q, K, mask), -1, -1), mask)


def broadcast(*tensors: Tensor | None) -> tuple[int, ...]:
    """The batch-like dimensions that they broadcast to."""
    return np.broadcast_shapes(*(x.shape[:-2] for x in tensors if x is not None))


def read_tensor(x: Any) -> Tensor:
    """A tensor, which may require a gradient, or a numpy array; or a list of them, of one shape."""
    return torch.stack([read_tensor(each) for each in x]) if isinstance(x, list) else torch.as_tensor(x).detach()


def make_call(name: str, tensors: Mapping[str, Any]) -> Case:
    """A call with these arguments, of whatever shapes and dtypes they are; what is right is not known yet.

    Raises:
        BadInput: Q, K or V is not among them.
    """
    if missing := [key for key in NAMES[:3] if not isinstance(tensors.get(key), Tensor)]:
        lacks = f"lacks {' and '.join(missing)}, it has {', '.join(tensors) or 'nothing'}"
        raise BadInput(f"{name} {lacks}: a call of attention is Q, K, V and, if there is one, mask")
    return Case(name, ADAPTER, {key: tensors.get(key) for key in NAMES}, None, {})


def read_call(path: Path) -> Case:
    """Read Q, K, V and, if it is there, mask from a safetensors file.

    Raises:
        BadInput: the file is missing, is not a safetensors file, or lacks one of them.
    """
    try:
        return make_call(str(path), load_file(path))
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror or error}") from None
    except SafetensorError as error:
        advice = "write one with safetensors.torch.save_file"
        raise BadInput(f"{path} is not a safetensors file ({error}): {advice}") from None


def set_beside_pytorch(call: Case, cotangent: Tensor | None = None) -> Case:
    """The call with what PyTorch's own attention answers in float64, and its gradients for this one of the answer."""
    leaves = [call.inputs[name].detach().double().requires_grad_() for name in "QKV"]
    answer = scaled_dot_product_attention(*leaves, attn_mask=call.mask)
    expected = {"answer": answer.detach()}
    if cotangent is not None:
        loss = (answer * cotangent).sum()  # given a gradient, autograd imports sympy, which takes half a second
        expected |= {GRADIENT + name: x for name, x in zip("QKV", torch.autograd.grad(loss, leaves), strict=True)}
    return replace(call, cotangent=cotangent, expected=expected)


def explain_misfit(call: Case) -> str:
    """Say why these cannot be arguments of attention; nothing if they can."""
    with jaxtyped("context"):  # in which each name of an axis has one size
        for name, x in call.inputs.items():
            contract = CONTRACT[name]
            if x is None or (x.numel() and isinstance(x, contract) and x.dtype in (call.Q.dtype, torch.bool)):
                continue
            came = f"{name} {tuple(x.shape)} {name_dtype(x.dtype)}"
            if not x.numel():
                return f"{came} has no numbers: there is nothing to look at"
            if name == "mask" and x.dtype != torch.bool:
                return f"{came} should be boolean, True = may attend: {AS_BOOLEAN}"
            dtype = "boolean" if name == "mask" else "of one floating-point dtype with Q"
            shape = contract.dim_str.replace("*#batch", "...").replace("#", "").replace(" ", ", ")
            expected = f"it should be {dtype}, and of the shape ({shape})"
            return f"{came} does not fit what is before it: {expected}. Is it transposed, or of another sequence?"
    return ""


def report_attention(call: Case, student: Student, values: bool = False) -> Iterator[RenderableType]:
    """Report a call as `report_call` does; that of a call without its right answer is PyTorch's."""
    yield from report_inputs(call, values)
    if call.expected:
        yield from report_call(call, student, values)
    elif misfit := explain_misfit(call):
        yield Lines([misfit], "yellow")
    elif bad := [name for name in "QKV" if not call.inputs[name].isfinite().all()]:
        yield Text(f"Look at what made {bad[0]}: with NaN or infinity in it, attention has no right answer.")
    else:
        yield from report_call(set_beside_pytorch(call), student, values, "PyTorch's own, in float64")
