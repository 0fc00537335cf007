"""The losses of the paper as pure functions, one per equation. Each returns a sum; the algorithm divides once."""

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


def policy_gradient(log_p: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """REINFORCE, Eqs. 9-11: a surrogate whose gradient is the single-sample estimator of Eq. 11.

    dL/do_t = (r - rbar_{t+1}) * (p_theta(w_{t+1} | w^g_t, h_{t+1}, c_t) - 1(w^g_{t+1}))

    Args:
        log_p: (B, T) log p of w^g, the words that were sampled, with gradient.
        advantage: (B, T) r - rbar_t; treated as a constant.
        mask: (B, T) true on the steps that the model wrote, up to and including EOS.
    """
    weight = torch.where(mask, advantage.detach(), 0)  # masked first: the gradient of NaN times 0 is NaN
    return -(torch.where(mask, log_p, 0) * weight).sum()


def baseline_error(r_bar: Tensor, r: Tensor, mask: Tensor) -> Tensor:
    """||rbar_t - r||^2 (Sec. 3.2.1), what the linear regressor is trained by.  (B, T), (B,), (B, T) -> ()"""
    return torch.where(mask, r_bar - r.detach().unsqueeze(-1), 0).square().sum()


def entropy(logits: Tensor) -> Tensor:
    """H(p_theta) in nats: how many words the model hesitates about, as a logarithm.  (..., V) -> (...)"""
    log_p = logits.log_softmax(-1)
    return -(log_p.exp() * log_p).sum(-1)
