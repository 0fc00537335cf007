"""Recurrent generators: Elman RNN (Eqs. 3-5), LSTM and GRU, in the paper's reading or the released one."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqmixer.kernels import Attention, fused, in_triton, recur
from seqmixer.models.encoders import Encoder
from seqmixer.models.output import OutputLayer
from seqmixer.types import Context, SequenceModel, State


@dataclass(frozen=True)
class Weights:
    """A cell's matrices as `kernels.recur` takes them. G gates: 1 of the Elman cell, 4 of the LSTM."""

    gates: Tensor  # (..., G H) what words and biases bring
    U: Tensor  # (G H, H) from the hidden state
    C: Tensor | None  # (G H, H) from the context


class Cell(nn.Module, ABC):
    """One layer of recurrence. A state is a tuple of (B, H) tensors, h first."""

    parts: int  # how many tensors a state has

    @abstractmethod
    def forward(self, x: Tensor, c: Tensor | None, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """(B, H), (B, H), state of step t -> state of step t + 1"""

    @abstractmethod
    def weights(self, x: Tensor) -> Weights | None:
        """The matrices of the cell, for words (..., H) of any number of steps; None where `recur` lacks the cell."""


class ElmanCell(Cell):
    """Eq. 3:  h_{t+1} = sigmoid(M_i 1(w_t) + M_h h_t + M_c c_t), with x = M_i 1(w_t)."""

    parts = 1

    def __init__(self, hidden: int, attentive: bool) -> None:
        super().__init__()
        self.M_h = nn.Linear(hidden, hidden)
        self.M_c = nn.Linear(hidden, hidden, bias=False) if attentive else None

    def forward(self, x: Tensor, c: Tensor | None, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        (h,) = state
        total = x + self.M_h(h)
        if self.M_c is not None:
            total = total + self.M_c(c)
        return (torch.sigmoid(total),)

    def weights(self, x: Tensor) -> Weights:
        return Weights(x + self.M_h.bias, self.M_h.weight, None if self.M_c is None else self.M_c.weight)


class LSTMCell(Cell):
    """Long short-term memory; the context enters every gate beside the word."""

    parts = 2

    def __init__(self, hidden: int, attentive: bool) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(2 * hidden if attentive else hidden, hidden)

    def forward(self, x: Tensor, c: Tensor | None, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return self.cell(beside(x, c), state)  # h, cell

    def weights(self, x: Tensor) -> Weights:
        H = self.cell.hidden_size
        of_word, of_context = self.cell.weight_ih[:, :H], self.cell.weight_ih[:, H:]  # (4 H, H), (4 H, H or 0)
        gates = F.linear(x, of_word, self.cell.bias_ih + self.cell.bias_hh)  # (..., 4 H)
        return Weights(gates, self.cell.weight_hh, of_context if of_context.shape[1] else None)


class GRUCell(Cell):
    """Gated recurrent unit; the context enters every gate beside the word."""

    parts = 1

    def __init__(self, hidden: int, attentive: bool) -> None:
        super().__init__()
        self.cell = nn.GRUCell(2 * hidden if attentive else hidden, hidden)

    def forward(self, x: Tensor, c: Tensor | None, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (self.cell(beside(x, c), state[0]),)

    def weights(self, x: Tensor) -> None:
        return None  # its reset gate stands between the state and its matrix


def beside(x: Tensor, c: Tensor | None) -> Tensor:
    return x if c is None else torch.cat([x, c], -1)  # (B, 2H)


class Recurrent(SequenceModel):
    """A recurrent generator: `layers` cells over an encoder. The context enters the first layer.

    The paper's reading: the query of the attention is h_t, the output reads h_{t+1} (Eq. 4).
    The released network (`released=True`): the query is x + W_h h_t + W_m cell_t, and the output reads
    [h_{t+1}; sigmoid(W_c c_t)]. Without an attentive encoder the two are the same.
    """

    fresh_logits = True

    def __init__(
        self,
        cell: type[ElmanCell] | type[LSTMCell] | type[GRUCell],
        encoder: Encoder,
        vocab_size: int,
        hidden: int,
        *,
        layers: int = 1,
        dropout: float = 0.0,
        released: bool = False,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.hidden = hidden
        self.parts = cell.parts
        self.M_i = nn.Embedding(vocab_size, hidden)
        self.cells = nn.ModuleList([cell(hidden, encoder.attentive and layer == 0) for layer in range(layers)])
        self.released = released and encoder.attentive
        if self.released:
            self.query = nn.Linear(cell.parts * hidden, hidden, bias=False)  # [W_h W_m]
            self.output = nn.Linear(hidden, hidden)  # W_c
        self.features = 2 * hidden if self.released else hidden  # the size of what `step` returns as h
        self.M_o = OutputLayer(self.features, vocab_size)
        self.dropout = nn.Dropout(dropout)

    def encode(self, source: Tensor) -> Context:
        return self.encoder(source)

    def start(self, context: Context) -> State:
        zero = context[0].new_zeros(len(context[0]), self.hidden)  # h_1: (B, H)
        state = tuple((zero,) * self.parts for _ in self.cells)
        first = self.encoder.first_word(context)
        return state if first is None else self.step(first, state, context)[1]

    def embed(self, words: Tensor) -> Tensor:
        return self.M_i(words)

    def step(self, x: Tensor, state: State, context: Context) -> tuple[Tensor, State]:
        if in_triton(x) and not torch.is_grad_enabled():
            written = self.written_out(x.unsqueeze(0), state, context)
            if written is not None:
                return written[0][0], written[1]
        c = self.encoder.attend(self.asked(x, state), context)  # c_t: (B, H)
        new: list[tuple[Tensor, ...]] = []
        h, context_vector = x, c
        for cell, old in zip(self.cells, state, strict=True):
            new.append(cell(self.dropout(h), context_vector, old))
            h, context_vector = new[-1][0], None  # h_{t+1}: (B, H)
        return self.read(h, c), tuple(new)

    def asked(self, x: Tensor, state: State) -> Tensor:
        """The query of the attention.  -> (B, H)"""
        top = state[-1]
        return x + self.query(torch.cat(top, -1)) if self.released else top[0]

    def attention(self, words: Tensor, context: Context) -> Tensor | None:
        state = self.start(context)
        rows = []
        for x in self.embed(words).unbind(1):
            alpha = self.encoder.alpha(self.asked(x, state), context)
            if alpha is None:
                return None
            rows.append(alpha)
            _, state = self.step(x, state, context)
        return torch.stack(rows, 1)

    def read(self, h: Tensor, c: Tensor | None) -> Tensor:
        """The input of the output layer.  (..., H) -> (..., H or 2 H)"""
        return torch.cat([h, torch.sigmoid(self.output(c))], -1) if self.released else h

    def logits(self, h: Tensor) -> Tensor:
        return self.M_o(self.dropout(h))  # Eq. 4: (..., H) -> (..., V)

    def log_prob(self, h: Tensor, words: Tensor) -> Tensor:
        return self.M_o.log_prob(self.dropout(h), words) if fused() else super().log_prob(h, words)

    def unroll(self, words: Tensor, context: Context) -> Tensor:
        x = self.embed(words).transpose(0, 1)  # (T, B, H)
        written = self.written_out(x, self.start(context), context)
        return step_by_step(self, words, context) if written is None else written[0].transpose(0, 1)

    def written_out(self, x: Tensor, state: State, context: Context) -> tuple[Tensor, State] | None:
        """T steps by `kernels.recur`: features (T, B, .) and the state after them; None where it lacks the cell."""
        (cell, *more) = self.cells
        weights: Weights | None = cell.weights(self.dropout(x)) if fused() and not more else None  # type: ignore[operator]
        if weights is None:
            return None
        attention = None
        if self.encoder.attentive:
            values, z, real = context
            query = (x, self.query.weight) if self.released else (None, None)
            attention = Attention(z, values, real, *query)
        states, c = recur(weights.gates, state[0], weights.U, weights.C, attention)
        return self.read(states[0], c), (tuple(part[-1] for part in states),)


def step_by_step(model: SequenceModel, words: Tensor, context: Context) -> Tensor:
    """`unroll` by single steps.  (B, T) -> (B, T, H)"""
    state = model.start(context)
    features = []
    for x in model.embed(words).unbind(1):
        h, state = model.step(x, state, context)
        features.append(h)
    return torch.stack(features, 1)


def initialise(model: nn.Module, std: float) -> None:
    """The released initialisation: weights from N(0, std), biases 0. Gains of norms, which it does not have, are 1."""
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if "bias" in name:
                nn.init.zeros_(parameter)
            elif isinstance(module, nn.LayerNorm):
                nn.init.ones_(parameter)
            else:
                nn.init.normal_(parameter, std=std)
