"""Transforms of functions, autograd, and what shares memory."""

import numpy as np
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

X = torch.arange(6.0).reshape(2, 3)


def heads_are_mapped_over_and_maps_are_nested():
    def attend(q, k, v):
        scores = q @ k.mT / q.shape[-1] ** 0.5
        weights = torch.softmax(scores, -1)
        return weights @ v

    nested = torch.vmap(torch.vmap(lambda a, b: a * b), in_dims=(1, 1), out_dims=1)
    return torch.vmap(attend)(*X[None].expand(3, 1, 2, 3).unbind(0)), nested(X, X)


def a_map_changes_in_place_and_something_of_it_is_kept():
    kept = []

    def double(x):
        y = x.clone()
        y *= 2
        y[0] = 1.0
        y.add_(1)
        kept.append(tuple(y.shape))
        return y

    return torch.vmap(double)(X), kept


def a_derivative_is_taken_of_a_function():
    def loss(x):
        y = x * x
        return y.sum()

    backwards = torch.func.grad(loss)(X), torch.func.vjp(loss, X)[0], torch.func.hessian(loss)(X[0])
    return backwards, torch.func.jvp(loss, (X,), (torch.ones_like(X),)), torch.func.jacrev(lambda x: x * 2)(X[0])


def gradients_are_mapped_over():
    def loss(w, x):
        z = w * x
        return z.square().sum()

    return torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(X[0], X)


def a_module_is_called_with_other_weights():
    layer = nn.Linear(3, 3, bias=False)
    return torch.func.functional_call(layer, {"weight": torch.eye(3)}, X)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 2 * x * gradient


def a_backward_pass_is_written_by_hand():
    x = X.clone().requires_grad_()
    y = Square.apply(x)
    y.sum().backward()
    return x.grad, y


def a_forward_pass_is_computed_again():
    x, seen = X.clone().requires_grad_(), []

    def f(x):
        seen.append("again")
        return torch.sin(x) * 2

    checkpoint(f, x, use_reentrant=False).sum().backward()
    return x.grad, len(seen)


def gradients_go_through_changes_in_place():
    x = X.clone().requires_grad_()
    y = x * 2
    y[0] += 1
    y[:, 1].mul_(3)
    y.relu_()
    y.sum().backward()
    return x.grad, y


def a_leaf_is_changed_in_place():
    x = X.clone().requires_grad_()
    x += 1
    return x


def what_backward_needs_is_changed():
    x = X.clone().requires_grad_()
    y = x.exp()
    y += 1
    y.sum().backward()


def hooks_are_called_and_gradients_have_gradients():
    x = X.clone().requires_grad_()
    y = x * 2
    seen = []
    y.register_hook(lambda g: seen.append(g.sum().item()))
    y.retain_grad()
    y.sum().backward()
    (slope,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    return seen, y.grad, x.grad, torch.autograd.grad(slope.sum(), x)[0]


def gradients_are_off_and_tensors_are_of_inference():
    x = X.clone().requires_grad_()
    with torch.no_grad():
        y = x * 2
    with torch.inference_mode():
        z = X * 2
        z += 1
        z[0] = 0
        z.mul_(2)
    grads = y.requires_grad, (x.detach() + x.data).requires_grad, torch.is_grad_enabled()
    return grads, z.is_inference(), z.clone()


def views_are_changed():
    x = X.clone()
    row = x[0]
    row += 1
    x[:, 1].mul_(3)
    x.T[0] = 5
    x.view(-1)[3:].zero_()
    return x, row


def parameters_are_changed():
    layer = nn.Linear(3, 3, bias=False)
    weight = layer.weight
    with torch.no_grad():
        layer.weight.zero_()
        layer.weight += 1
        weight += 1
        layer.weight[0] -= 1
        layer.weight.data.add_(1)
    return layer.weight.detach().clone(), weight is layer.weight, type(layer.weight).__name__


def a_parameter_is_put_in():
    layer = nn.Linear(3, 3)
    layer.weight.data = torch.eye(3)
    layer.bias = nn.Parameter(torch.zeros(3))
    return layer(X), [name for name, _ in layer.named_parameters()], isinstance(layer.bias, nn.Parameter)


def an_array_shares_memory():
    x = X.clone()
    a = x.numpy()
    a *= 2
    a[0, 0] = 7
    a += x.numpy()
    np.add(a, 1, out=a)
    return x + 0, a.sum(), a.base is None


def an_array_is_viewed():
    a = np.arange(6.0).reshape(2, 3)
    b = a.T[::-1]
    b[0] = -1
    a[a < 0] = 3
    a.sort(axis=1)
    return torch.from_numpy(a.copy()), b.shape, type(a.sum()).__name__


def numbers_are_of_numpy():
    n = np.float64(3.0)
    k = n * 2
    k += 1
    return k, type(k).__name__, torch.tensor(k), np.argmax(np.array([1, 3, 2]))


def storage_is_shared_and_an_output_is_given():
    x = X.clone()
    y = x.expand(4, 2, 3)
    z = x.as_strided((3, 2), (1, 3))
    x[0, 0] = 9
    out = torch.empty(2, 3)
    same = torch.add(X, 1, out=out)
    return y.sum(), z, y.data_ptr() == x.data_ptr(), x.is_contiguous(), z.stride(), out, same is out
