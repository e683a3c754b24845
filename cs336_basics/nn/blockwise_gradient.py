import math
import torch
from torch.autograd import Function
from cs336_basics.nn.functional import at_least_float32

class BlockwiseAttention(Function):
    @staticmethod
    def forward(ctx, Q, K, V, plan, attend_blocks):
        output, logsumexp = attend_blocks(Q, K, V, plan)
        ctx.save_for_backward(Q, K, V, output, logsumexp)
        ctx.plan = plan
        return output

    @staticmethod
    def backward(ctx, grad_output):
        if torch.is_grad_enabled():
            raise RuntimeError("no second derivative")
        Q, K, V, output, logsumexp = ctx.saved_tensors
        plan = ctx.plan
        acc = logsumexp.dtype
        scale = 1 / math.sqrt(max(1, Q.shape[-1]))
        dQ = plan.for_queries(Q.shape[-1], acc).zero_(); dK = plan.for_keys(K, acc).zero_(); dV = plan.for_keys(V, acc).zero_()
        for blocks, (q, k, v, out, lse, g, dq, dk, dv) in plan.groups(Q, K, V, output, logsumexp, grad_output, dQ, dK, dV):
            sharing = q.shape[1]
            for rows, key_blocks in blocks:
                queries = (at_least_float32(q[:, :, rows]) * (scale * math.log2(math.e))).flatten(1, 2)
                above = at_least_float32(g[:, :, rows]).flatten(1, 2)
                total = lse[:, :, rows].flatten(1, 2)
                mean = (above * at_least_float32(out[:, :, rows]).flatten(1, 2)).sum(-1, keepdim=True)
                dqueries = torch.zeros_like(queries)
                for columns, tile in key_blocks:
                    keys, values = at_least_float32(k[:, 0, columns]), at_least_float32(v[:, 0, columns])
                    weights = torch.bmm(queries, keys.mT).sub_(total)
                    if tile is not None:
                        weights.unflatten(1, (sharing, -1)).masked_fill_(~tile, -math.inf)
                    weights.exp2_()
                    dv[:, 0, columns].baddbmm_(weights.mT, above)
                    dscores = torch.bmm(above, values.mT).sub_(mean).mul_(weights)
                    dqueries.baddbmm_(dscores, keys)
                    dk[:, 0, columns].baddbmm_(dscores.mT, queries)
                dq[:, :, rows] = dqueries.mul_(scale).unflatten(1, (sharing, -1))
        dK.mul_(math.log(2))
        return dQ.sum_to_size(Q.shape).to(Q.dtype), dK.sum_to_size(K.shape).to(K.dtype), dV.sum_to_size(V.shape).to(V.dtype), None, None
