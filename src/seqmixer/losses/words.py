"""Word by word: the probability of each, cross entropy, and how much a model hesitates."""

import torch
from torch import Tensor

LEAST = 1e-5  # 1 - p, where a word is all but certain: the logarithm stays finite, as in the authors' code


def log_prob(logits: Tensor, words: Tensor) -> Tensor:
    """log p_theta(w_t | ...), Eq. 5, in float32 at least.  (B, T, V), (B, T) -> (B, T)"""
    return words_of(log_probs(logits), words)


def log_probs(logits: Tensor) -> Tensor:
    """log p of every word, in float32 at least.  (B, T, V) -> (B, T, V)"""
    return logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))


def words_of(values: Tensor, words: Tensor) -> Tensor:
    """Of values for every word, those of these words.  (B, T, V), (B, T) -> (B, T)"""
    return values.gather(-1, words.unsqueeze(-1)).squeeze(-1)


def cross_entropy(log_p: Tensor, mask: Tensor) -> Tensor:
    """XENT, Eq. 6:  L = - sum_t log p(w_t | w_1, ..., w_{t-1}), over the steps where `mask` is true.

    Args:
        log_p: (B, T) log p of the reference, with gradient.
        mask: (B, T) true on the steps that count.
    """
    return -torch.where(mask, log_p, 0).sum()


def smoothing_loss(log_p: Tensor, mask: Tensor) -> Tensor:
    """Label smoothing, Szegedy et al. (2016), Sec. 7:  L = (1 - epsilon) XENT + epsilon times this,

    - sum_t 1/V sum_v log p(v | w_1, ..., w_{t-1})

    Args:
        log_p: (B, T, V) log p of the V words among which epsilon is shared.
    """
    return cross_entropy(log_p.mean(-1), mask)


def unlikelihood_loss(log_p: Tensor, words: Tensor, mask: Tensor) -> Tensor:
    """Unlikelihood by words, Welleck et al. (2020), (4) and (5):  L = XENT + alpha times this,

    - sum_t sum_{c in C_t} log(1 - p(c | w_1, ..., w_{t-1})),   C_t = those of w_1, ..., w_{t-1} that are not w_t

    Args:
        log_p: (B, T, V) log p of every word.
        words: (B, T) the reference; `mask` is true on its words.
    """
    same = words.unsqueeze(1) == words.unsqueeze(2)  # (B, T, T) words t and c
    first = ~same.tril(-1).any(-1)  # (B, T) whether word c is not an earlier one
    counted = (~same).tril(-1) & first.unsqueeze(1) & mask.unsqueeze(2) & mask.unsqueeze(1)
    p = log_p.gather(-1, words.unsqueeze(1).expand_as(same)).exp()  # (B, T, T) of word c at step t
    return -torch.where(counted, torch.log((1 - p).clamp(min=LEAST)), 0).sum()


def entropy(logits: Tensor) -> Tensor:
    """H(p_theta) in nats: how many words the model hesitates about, as a logarithm.  (..., V) -> (...)"""
    log_p = logits.log_softmax(-1)
    return -(log_p.exp() * log_p).sum(-1)
