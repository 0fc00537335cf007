"""Word by word: the probability of each, cross entropy, and how much a model hesitates."""

import torch
from torch import Tensor


def log_prob(logits: Tensor, words: Tensor) -> Tensor:
    """log p_theta(w_t | ...), Eq. 5, in float32 at least.  (B, T, V), (B, T) -> (B, T)"""
    exact = torch.promote_types(logits.dtype, torch.float32)
    return logits.log_softmax(-1, dtype=exact).gather(-1, words.unsqueeze(-1)).squeeze(-1)


def cross_entropy(log_p: Tensor, mask: Tensor) -> Tensor:
    """XENT, Eq. 6:  L = - sum_t log p(w_t | w_1, ..., w_{t-1}), over the steps where `mask` is true.

    Args:
        log_p: (B, T) log p of the reference, with gradient.
        mask: (B, T) true on the steps that count.
    """
    return -torch.where(mask, log_p, 0).sum()


def entropy(logits: Tensor) -> Tensor:
    """H(p_theta) in nats: how many words the model hesitates about, as a logarithm.  (..., V) -> (...)"""
    log_p = logits.log_softmax(-1)
    return -(log_p.exp() * log_p).sum(-1)
