"""A network of its own that says which reward is still to come, word by word (Bahdanau et al. 2017)."""

import torch
from torch import Tensor, nn

from seqmixer.algorithms.algorithm import Candidates
from seqmixer.decoding import read, shift
from seqmixer.models import AttentiveEncoder, LSTMCell, Recurrent
from seqmixer.types import Batch


class Critic(nn.Module):
    """V_t, the reward still to come after w_1..w_{t-1}: an attentive LSTM, whose source is the reference.

    What is expected before a word is drawn may hang on all but that word, also on the reference: Eq. 11 stays unbiased.
    """

    def __init__(self, words: int, hidden: int, length: int) -> None:
        super().__init__()
        self.network = Recurrent(LSTMCell, AttentiveEncoder(words, hidden, length), words, hidden)
        del self.network.M_o  # it predicts no words
        self.weight = nn.Parameter(torch.zeros(hidden))
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, h: Tensor, candidates: Candidates, batch: Batch) -> Tensor:
        """-> (Bk, T). The states of the model that is trained, h, are not read."""
        references = batch.target[:: candidates.k]  # (B, T)
        context = read(self.network, references, len(candidates.words))
        x = self.network.unroll(shift(candidates.words), context)  # (Bk, T, H)
        return (x * self.weight).sum(-1) + self.bias  # no matrix product, which autocast would take in bfloat16
