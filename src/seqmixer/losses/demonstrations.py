"""Learning from references alone, each of their words with a weight of its own."""

import torch
from torch import Tensor
from torch.nn.functional import pad


def gold_weight(log_p: Tensor, log_q: Tensor | None, mask: Tensor, u: float, c: float, horizon: int) -> Tensor:
    """GOLD, Pang and He (2021), Algorithm 1:  L = - sum_t max(u, p(w_t)) Q_t log p(w_t), the weights as constants.

    Q_t = 1/(n+1) sum_{i=0}^{n} max(c, q(w_{t+i})),   q the model that GOLD begins with, n the horizon

    The first factor is the importance weight of a word that was not sampled: one that the model would hardly write
    counts less. Q is the reward-to-go of GOLD-s; after the end of a sentence the reward is 1, as in the authors' code.
    With c = 1, or without q, all rewards are 1: GOLD-delta. With u = c = 1 it is XENT.

    Args:
        log_p: (B, T) log p of the words of the reference.
        log_q: (B, T) the same of the model that GOLD begins with.
        mask: (B, T) true on the words of the reference.
    """
    weight = log_p.detach().exp().clamp(min=u)
    if log_q is None:
        return weight
    r = torch.where(mask, log_q.detach().exp().clamp(min=c), 1)  # (B, T)
    return weight * pad(r, (0, horizon), value=1.0).unfold(-1, horizon + 1, 1).mean(-1)
