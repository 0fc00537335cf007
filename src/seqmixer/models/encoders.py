"""Where the context c_t comes from: a text attended to (Eqs. 12-14), an image fed as the first word, or nothing."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqmixer.types import PAD, Context


class Encoder(nn.Module, ABC):
    """The context of a recurrent decoder."""

    attentive = False  # whether `attend` gives a c_t

    @abstractmethod
    def forward(self, source: Tensor) -> Context:
        """Encode once per sentence. The first tensor of the context tells the batch size and the type of a state."""

    def attend(self, query: Tensor, context: Context) -> Tensor | None:
        """c_t for one step; None where no context is attended to.  (B, H) -> (B, H)"""
        return None

    def alpha(self, query: Tensor, context: Context) -> Tensor | None:
        """The weights of `attend`; None where no context is attended to.  (B, H) -> (B, N)"""
        return None

    def first_word(self, context: Context) -> Tensor | None:
        """The input before the first word, such as an image; None where there is none.  -> (B, H)"""
        return None


class AttentiveEncoder(Encoder):
    """The paper's attentive encoder (Sec. 6.2): words and positions, averaged over a window, scored against a query.

    a_i = w_i + l_i
    z_i = 1/q sum_{h=-q/2}^{q/2} a_{i+h}        (Eq. 12)
    c_t = sum_j alpha_{j,t} w_j                 (Eq. 13; the released network sums a_j)
    alpha_{j,t} = softmax_j(z_j . query_t)      (Eq. 14; the paper's query is h_t)
    """

    attentive = True

    def __init__(
        self, vocab_size: int, hidden: int, positions: int, window: int = 5, sum_positions: bool = False
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(vocab_size, hidden)
        self.positions = nn.Embedding(positions, hidden)
        self.window = window
        self.sum_positions = sum_positions

    def forward(self, source: Tensor) -> Context:
        real = (source != PAD).unsqueeze(-1)  # (B, N, 1)
        # Sources longer than any seen in training share the last position.
        place = torch.arange(source.shape[1], device=source.device).clamp(max=self.positions.num_embeddings - 1)
        w = self.words(source)  # (B, N, H)
        a = (w + self.positions(place)) * real  # (B, N, H); zero padding, so that padding a batch changes nothing
        z = F.avg_pool1d(a.transpose(1, 2), self.window, stride=1, padding=self.window // 2).transpose(1, 2)
        return a if self.sum_positions else w, z, real.squeeze(-1)

    def attend(self, query: Tensor, context: Context) -> Tensor:
        values = context[0]  # (B, N, H)
        return (self.alpha(query, context).unsqueeze(1) @ values).squeeze(1)  # (B, 1, N) x (B, N, H) -> (B, H)

    def alpha(self, query: Tensor, context: Context) -> Tensor:
        _, z, real = context  # (B, N, H), (B, N)
        scores = (z @ query.unsqueeze(-1)).squeeze(-1)  # (B, N, H) x (B, H, 1) -> (B, N)
        return scores.masked_fill(~real, -torch.inf).softmax(-1)  # (B, N)


class ImageEncoder(Encoder):
    """Image features "provided to the generative model as the first word in the sequence" (Sec. 4.3)."""

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.project = nn.Linear(features, hidden)

    def forward(self, source: Tensor) -> Context:
        return (self.project(source),)  # ((B, D) -> (B, H),)

    def first_word(self, context: Context) -> Tensor:
        return context[0]


class NoEncoder(Encoder):
    """A plain language model."""

    zero: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("zero", torch.zeros(()), persistent=False)  # knows the device and the type

    def forward(self, source: Tensor) -> Context:
        return (self.zero.expand(len(source), 1),)
