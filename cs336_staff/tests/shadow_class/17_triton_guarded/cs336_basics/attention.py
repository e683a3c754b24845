import torch

try:
    import triton
    import triton.language as tl

    HAVE_TRITON = torch.cuda.is_available()
except ImportError:
    HAVE_TRITON = False

if HAVE_TRITON:

    @triton.jit
    def row_softmax(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
        row, cols = tl.program_id(0), tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=-float("inf"))
        e = tl.exp(x - tl.max(x, axis=0))
        tl.store(y_ptr + row * n + cols, e / tl.sum(e, axis=0), mask=cols < n)


def softmax(x, dim):
    y = x if x.dtype == torch.float64 else x.float()
    if HAVE_TRITON and x.is_cuda and dim in (-1, x.ndim - 1) and not x.requires_grad:
        y = y.contiguous()
        out = torch.empty_like(y)
        row_softmax[(y.numel() // y.shape[-1],)](y, out, y.shape[-1], BLOCK=triton.next_power_of_2(y.shape[-1]))
        return out.to(x.dtype)
    e = torch.exp(y - y.amax(dim, keepdim=True))
    return (e / e.sum(dim, keepdim=True)).to(x.dtype)


def sdpa(Q, K, V, mask=None):
    q, k, v = (t if t.dtype == torch.float64 else t.float() for t in (Q, K, V))
    scores = q.matmul(k.transpose(-2, -1)) * (1.0 / Q.shape[-1] ** 0.5)
    if mask is not None:
        none_visible = torch.logical_not(mask).all(-1, keepdim=True)
        bias = torch.zeros(mask.shape, dtype=scores.dtype).masked_fill(~mask, -torch.inf).masked_fill(none_visible, 0.0)
        return (softmax(scores + bias, -1).matmul(v) * none_visible.logical_not()).to(Q.dtype)
    return softmax(scores, -1).matmul(v).to(Q.dtype)
