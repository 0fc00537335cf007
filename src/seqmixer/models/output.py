"""The output layer that the own models have in common."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqmixer.kernels import linear, linear_log_prob
from seqmixer.types import BOS, PAD

NEVER = -1e4  # a logit of probability 0 in every float type, without the NaN that -inf brings to entropies


class OutputLayer(nn.Linear):
    """M_o of Eq. 4, whose scores for PAD and BOS are such that they are never written."""

    never: Tensor

    def __init__(self, features: int, vocab_size: int) -> None:
        super().__init__(features, vocab_size)
        self.register_buffer("never", not_written(vocab_size), persistent=False)

    def forward(self, h: Tensor) -> Tensor:
        bias = self.bias + self.never
        if h.dim() == 2 and not torch.is_grad_enabled():  # a word of a search
            return linear(h, self.weight, bias)  # (B, H) -> (B, V)
        return F.linear(h, self.weight, bias)  # (..., H) -> (..., V)

    def log_prob(self, h: Tensor, words: Tensor) -> Tensor:
        """log p of words, without the scores of all steps at once.  (B, T, H), (B, T) -> (B, T)"""
        flat = linear_log_prob(h.flatten(0, -2), self.weight, self.bias + self.never, words.flatten())  # (B T,)
        return flat.view_as(words)


def not_written(vocab_size: int) -> Tensor:
    """What is added to the logits: nothing, but NEVER for PAD and BOS.  -> (V,)"""
    never = torch.zeros(vocab_size)
    never[[PAD, BOS]] = NEVER  # they stand around a sentence, never in it
    return never
