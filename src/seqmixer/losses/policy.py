"""Policy gradients: words of a sample become more likely by its advantage."""

import torch
from torch import Tensor


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


def clipped_ratio(log_ratio: Tensor, advantage: Tensor, mask: Tensor, low: float, high: float) -> Tensor:
    """PPO's clipped surrogate, Schulman et al. (2017), (7), for each word:

    L_t = - min(rho_t A_t, clip(rho_t, 1 - low, 1 + high) A_t),   rho_t = p(w_t | ...) / p_old(w_t | ...)

    A word teaches nothing once its ratio has left the band in the direction that its advantage asks for. At a ratio of
    1 the gradient is that of `policy_gradient`.

    Args:
        log_ratio: (B, T) log rho, with gradient.
        advantage: (B, T) treated as a constant.
        mask: (B, T) true on the steps that the model wrote; 0 elsewhere.
    """
    ratio = torch.where(mask, log_ratio, 0).exp()
    weight = torch.where(mask, advantage.detach(), 0)
    return -torch.minimum(ratio * weight, ratio.clamp(1 - low, 1 + high) * weight)


def sentence_ratio(log_ratio: Tensor, mask: Tensor) -> Tensor:
    """The log of GSPO's ratio, Zheng et al. (2025), (7), for each word as in their GSPO-token.  (B, T) -> (B, T)

    s = (p(w) / p_old(w)) ^ (1/|w|),   s_t = sg[s] p(w_t | ...) / sg[p(w_t | ...)]

    sg stops the gradient: every word has its sentence's ratio, and the gradient of its own log p.
    """
    log_ratio = torch.where(mask, log_ratio, 0)
    mean = log_ratio.sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)  # (B, 1)
    return mean.detach() + log_ratio - log_ratio.detach()


def differences(to_go: Tensor, value: Tensor, mask: Tensor, trace: float) -> Tensor:
    """What each word was better than expected, from temporal differences, a constant.  -> (B, T)

    delta_t = r_t + V_{t+1} - V_t,   A_t = sum_{u >= t} lambda^{u-t} delta_u

    Schulman et al. (2016), (16), with gamma = 1. At lambda = 1 it is the reward to come less V_t, without bias; at 0 it
    is delta_t, with less variance, and as wrong as V is.

    Args:
        to_go: (B, T) or (B, 1) the reward from each step on, of which r_t is what one step takes off.
        value: (B, T) V_t, what is expected from step t on.
        mask: (B, T) true on the steps that the model wrote, without a gap; after them all is 0.
        trace: lambda.
    """
    rest, value = (torch.where(mask, each.detach(), 0) for each in (to_go, value))
    left = rest - value  # (B, T); r_t + V_{t+1} - V_t = (rest_t - V_t) - (rest_{t+1} - V_{t+1})
    delta = left - torch.cat([left[:, 1:], torch.zeros_like(left[:, :1])], 1)
    steps = torch.arange(left.shape[1], device=left.device)
    gap = steps.unsqueeze(0) - steps.unsqueeze(1)  # (t, u)
    weight = torch.where(gap >= 0, trace ** gap.clamp(min=0).to(left.dtype), 0)  # (T, T)
    return (weight * delta.unsqueeze(1)).sum(-1)  # no matrix product, which autocast would take in bfloat16


def baseline_error(r_bar: Tensor, r: Tensor, mask: Tensor) -> Tensor:
    """||rbar_t - r||^2 (Sec. 3.2.1), what a baseline is trained by.  (B, T), (B, T) or (B, 1), (B, T) -> ()"""
    return torch.where(mask, r_bar - r.detach(), 0).square().sum()
