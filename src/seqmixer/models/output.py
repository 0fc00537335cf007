"""The output layer that the own models have in common."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqmixer.kernels import linear, linear_log_prob
from seqmixer.types import BOS, NEVER


class OutputLayer(nn.Linear):
    """M_o of Eq. 4."""

    never: Tensor

    def __init__(self, features: int, vocab_size: int) -> None:
        super().__init__(features, vocab_size)
        never = torch.zeros(vocab_size)  # (V,)
        never[: BOS + 1] = NEVER
        self.register_buffer("never", never, persistent=False)

    def forward(self, h: Tensor) -> Tensor:
        if h.dim() == 2 and not torch.is_grad_enabled():  # a word of a search
            return linear(h, self.weight, self.bias)  # (B, H) -> (B, V)
        return F.linear(h, self.weight, self.bias)  # (..., H) -> (..., V)

    def log_prob(self, h: Tensor, words: Tensor) -> Tensor:
        """log p of words, without the scores of all steps at once.  (B, T, H), (B, T) -> (B, T)

        Only the kernel sees these scores: PAD and BOS are excluded by the bias.
        """
        flat = linear_log_prob(h.flatten(0, -2), self.weight, self.bias + self.never, words.flatten())  # (B T,)
        return flat.view_as(words)
