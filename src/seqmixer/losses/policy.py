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


def baseline_error(r_bar: Tensor, r: Tensor, mask: Tensor) -> Tensor:
    """||rbar_t - r||^2 (Sec. 3.2.1), what the linear regressor is trained by.  (B, T), (B,), (B, T) -> ()"""
    return torch.where(mask, r_bar - r.detach().unsqueeze(-1), 0).square().sum()
