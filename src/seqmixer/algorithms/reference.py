"""The KL term: a penalty on drift from a frozen reference model, and an estimate of the drift.

The objective is E[r] - beta KL(p || p_ref), over sentences, with

    KL(p || p_ref) = E_{w ~ p} [ sum_t delta_t ],   delta_t = log p(w_t | w_<t) - log p_ref(w_t | w_<t)

and its gradient, by the argument of Eqs. 9-11, is

    d KL = E [ sum_t delta_t * sum_t d log p(w_t) ] + E [ sum_t d log p(w_t) ]
         = E [ sum_t (delta_t + delta_{t+1} + ...) * d log p(w_t) ]

The second expectation is 0, and so is that of every delta before t times d log p(w_t): these are known when w_t is
drawn, and the expected d log p(w_t) is 0. So beta times the delta from there on (`drift_to_go`) is taken off the
reward of a step, as a constant. To differentiate an estimate of the KL as a loss instead gives another gradient: that
of the estimate below is, on average, the gradient of KL(p_ref || p) at each step.
"""

from copy import deepcopy

import torch
from torch import Tensor

from seqmixer.decoding import deployed, read, shift
from seqmixer.types import SequenceModel


def frozen(model: SequenceModel) -> SequenceModel:
    """A copy that is never trained."""
    return deepcopy(model).requires_grad_(False).eval()


@torch.no_grad()
def fixed_log_prob(model: SequenceModel, source: Tensor, words: Tensor) -> Tensor:
    """log p(w_t | w_<t), without dropout or gradient; of B/k sources each is for k sentences.  (B, T) -> (B, T)"""
    with deployed(model):
        return model.log_prob(model.unroll(shift(words), read(model, source, len(words))), words)


@torch.no_grad()
def drift_to_go(log_p: Tensor, log_ref: Tensor, free: Tensor) -> Tensor:
    """delta_t + delta_{t+1} + ... over the words that the model wrote.  (B, T), (B, T), (B, T) -> (B, T)"""
    delta = torch.where(free, log_p - log_ref, 0)
    return delta.flip(-1).cumsum(-1).flip(-1)


@torch.no_grad()
def divergence(log_p: Tensor, log_ref: Tensor, free: Tensor) -> Tensor:
    """KL(p || p_ref) of each sentence in nats, estimated by  sum_t exp(-delta_t) - 1 + delta_t.  -> (B,)

    No term is negative, since e^x >= 1 + x, and each is right on average:

    E_{w ~ p} [ p_ref(w) / p(w) - 1 + delta ] = sum_w p_ref(w) - 1 + E[delta] = KL
    """
    d = torch.where(free, log_ref - log_p, 0)  # (B, T)
    return (d.expm1() - d).sum(-1)
