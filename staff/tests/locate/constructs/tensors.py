"""Kinds of tensors, modules, and functions of others."""

import concurrent.futures

import torch
import torch.nn.functional as F
from einops import einsum, rearrange, reduce
from torch import Tensor, nn

X = torch.arange(6.0).reshape(2, 3)
SEEN: list[str] = []


class Loud(Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        SEEN.append(getattr(func, "__name__", str(func)))
        return super().__torch_function__(func, types, args, kwargs or {})


def a_subclass_sees_its_functions():
    SEEN.clear()
    x = X.as_subclass(Loud)
    y = x * 2
    y[0] += 1
    y.add_(1)
    return len(SEEN), SEEN[0], type(y).__name__, y.as_subclass(Tensor)


class Named(Tensor):
    @staticmethod
    def __new__(cls, data, label):
        made = torch.Tensor._make_subclass(cls, data)
        made.label = label
        return made

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        value = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(value, cls):
            value.label = args[0].label + "'"
        return value


def a_subclass_has_a_name():
    x = Named(X.clone(), "x")
    y = x + 1
    return y.label, (y * 2).label, x.label


class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        SEEN.append(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))


def a_mode_sees_all_functions():
    SEEN.clear()
    with Mode():
        y = X + 1
        z = y @ y.T
    return list(SEEN), z


def a_tensor_is_sparse_or_quantized():
    s = X.to_sparse()
    t = s * 2
    q = torch.quantize_per_tensor(X, 0.1, 0, torch.qint8)
    return t.to_dense(), X.to_sparse_csr() @ X.T, s.coalesce().indices(), q.dequantize(), q.int_repr()


def a_tensor_is_nested_or_jagged():
    n, m = (torch.nested.nested_tensor([X, X[:1]], layout=layout) for layout in (torch.strided, torch.jagged))
    n, m = n * 2, m * 2
    return n.unbind()[1], m.unbind()[1]


def a_tensor_has_no_storage():
    m = torch.empty(3, 4, device="meta")
    n = m @ m.T
    n += 1
    return tuple(n.shape), n.device.type


def a_tensor_is_complex():
    z = torch.view_as_complex(X.reshape(3, 2).contiguous())
    w = z * 1j
    w *= torch.polar(torch.ones(3), torch.arange(3.0))
    return torch.view_as_real(w.conj().resolve_conj()), w.imag, w.conj().is_conj()


def a_tensor_is_narrow():
    h, b = X.half(), X.bfloat16()
    b[0] += 1
    return (h / 3).to(torch.float32), (b / 3).float(), (h @ h.T).dtype, (b + h).dtype


def tensors_hold_whole_numbers_and_truth():
    n = torch.arange(6)
    mask = n > 2
    mask &= n < 5
    n[mask] = -1
    return n, mask, ~mask, bool(mask.any()), n.dtype


def a_tensor_is_empty_or_a_number_or_not_finite():
    x, y, z = torch.zeros(0, 3), torch.tensor(2.0), torch.tensor([1.0, -torch.inf, torch.nan])
    y += 1
    finite = z.exp(), torch.softmax(z[:2], 0), z.nan_to_num(), float("nan") == float("nan")
    return x.sum(0), y.item(), float(y), x.amax(1).shape, torch.zeros(0).mean().isnan(), finite


def the_default_dtype_is_another():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return torch.ones(2) / 3, torch.tensor(0.1).dtype
    finally:
        torch.set_default_dtype(before)


def several_values_have_names():
    found = X.max(-1)
    values, indices = X.max(-1)
    return found.values + values, indices, torch.return_types.max is type(found)


def tensors_come_in_lists():
    rows = [X[0], X[1]]
    rows.append(X[0])
    parts = X.split(1, dim=1)
    return torch.stack(rows), torch.cat(parts), [x * 2 for x in X.unbind()], torch.meshgrid(X[0], X[1], indexing="ij")


def random_numbers_are_drawn():
    torch.manual_seed(3)
    own = torch.Generator().manual_seed(4)
    return torch.rand(2), torch.rand(2, generator=own), F.dropout(torch.ones(8)), nn.Linear(2, 2).weight.detach()


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(2))
        self.register_buffer("calls", torch.zeros(()))
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x):
        self.calls += 1
        for layer in self.layers:
            x = x + layer(x) * self.scale
        return x


def a_module_is_run():
    torch.manual_seed(0)
    block = Block(3)
    block.register_forward_hook(lambda module, given, came: came * 2)
    return block(X), block.calls, sorted(block.state_dict()), sum(p.numel() for p in block.parameters())


def a_module_is_loaded():
    block, other = Block(3), Block(3)
    other.load_state_dict(block.state_dict())
    other.train(False)
    return torch.equal(block(X), other(X)), other.training


def axes_are_named():
    q = rearrange(X, "n (h d) -> h n d", h=3)
    return einsum(q, q, "h n d, h m d -> h n m"), reduce(X, "a b -> a", "max"), torch.einsum("ij,kj->ik", X, X)


def a_pattern_does_not_fit():
    return rearrange(X, "n (h d) -> h n d", h=2)


def a_function_is_compiled():
    @torch.compile(backend="eager", fullgraph=True)
    def double(x):
        y = x * 2
        return y + x.sum()

    return double(X)


def a_function_is_compiled_with_breaks():
    @torch.compile(backend="eager")
    def double(x):
        y = x * 2
        print("broken")
        return y + 1

    return double(X)


def a_function_is_traced():
    from torch.fx import symbolic_trace

    class Doubled(nn.Module):
        def forward(self, x):
            return x * 2 + 1

    return symbolic_trace(Doubled())(X)


def rows_are_computed_in_threads():
    def work(i):
        y = X * i
        y += 1
        return y.sum().item()

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return list(pool.map(work, range(16)))


def a_loop_keeps_a_running_sum():
    largest, total = torch.full((2, 1), -torch.inf), torch.zeros(2, 1)
    for column in X.split(1, -1):
        before, largest = largest, torch.maximum(largest, column)
        total = total * torch.exp(before - largest) + torch.exp(column - largest)
    return largest, total


def a_loop_is_long():
    total = 0.0
    for i in range(2000):
        total += i
    return total


def a_value_is_large():
    x = torch.ones(300, 400)
    y = x.cumsum(0)
    return y.sum(), y[-1, :3]
