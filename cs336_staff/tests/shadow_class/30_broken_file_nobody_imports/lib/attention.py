import torch

from .softmax import softmax


def attention(Q, K, V, mask=None):
    if Q.dtype in (torch.float16, torch.bfloat16):
        return attention(Q.float(), K.float(), V.float(), mask).to(Q.dtype)
    if mask is None:
        return softmax(Q @ K.mT / Q.shape[-1] ** 0.5, -1) @ V
    # a further key that everybody may see, with the value 0, when nothing else is there to be seen
    scores = Q @ K.mT / Q.shape[-1] ** 0.5
    scores = torch.where(mask, scores, -torch.inf)
    spare = torch.where(mask.any(-1, keepdim=True), -torch.inf, torch.zeros_like(scores[..., :1]))
    weights = softmax(torch.cat([scores, spare], -1), -1)[..., :-1]
    return weights @ V
