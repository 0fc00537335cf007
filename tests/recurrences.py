"""Recurrent layers for the tests of kernels: random ones, and what they are by the formula."""

from dataclasses import dataclass

import torch

from seqmixer.kernels import Attention


@dataclass(frozen=True)
class Layer:
    """What `recur` is given, made of leaves. `wide` is the matrix that C is a part of, as in an LSTM cell."""

    gates: torch.Tensor  # (T, B, G H)
    state: tuple[torch.Tensor, ...]  # (B, H) each
    U: torch.Tensor  # (G H, H)
    wide: torch.Tensor | None = None  # (G H, 2 H)
    attention: Attention | None = None

    @property
    def arguments(self):
        C = None if self.wide is None else self.wide[:, self.wide.shape[1] // 2 :]
        return self.gates, self.state, self.U, C, self.attention

    @property
    def leaves(self):
        a = self.attention
        parts = (self.gates, *self.state, self.U, self.wide, *((a.z, a.values, a.x, a.Q) if a else ()))
        return [part for part in parts if part is not None]


KINDS = {  # whether an LSTM, attentive, as released
    "elman": (False, False, False),
    "elman-attentive": (False, True, False),
    "elman-released": (False, True, True),
    "lstm": (True, False, False),
    "lstm-attentive": (True, True, False),
    "lstm-released": (True, True, True),
}


def layer(kind, T, B, H, N=5, dtype=torch.double, device="cpu"):
    """Random, with sources of random lengths."""
    lstm, attentive, released = KINDS[kind]
    G, parts = (4, 2) if lstm else (1, 1)

    def leaf(*shape):
        return (torch.randn(shape, dtype=dtype) / shape[-1] ** 0.5).to(device).requires_grad_()

    gates, state, U = leaf(T, B, G * H), tuple(leaf(B, H) for _ in range(parts)), leaf(G * H, H)
    if not attentive:
        return Layer(gates, state, U)
    real = torch.arange(N) < torch.randint(1, N + 1, (B, 1))  # (B, N)
    query = (leaf(T, B, H), leaf(H, parts * H)) if released else (None, None)
    attention = Attention(leaf(B, N, H), leaf(B, N, H), real.to(device), *query)
    return Layer(gates, state, U, leaf(G * H, 2 * H), attention)


def by_formula(gates, state, U, C=None, attention=None):
    """Eqs. 3 and 12-14, or an LSTM, step after step under autograd.  -> h (T, B, H), c (T, B, H) or None"""
    h, m = (*state, None)[:2]
    hs, contexts = [], []
    for t, total in enumerate(gates):
        total = total + h @ U.T
        if attention is not None:
            query = h
            if attention.Q is not None:
                query = attention.x[t] + torch.cat([h] if m is None else [h, m], -1) @ attention.Q.T
            scores = (attention.z * query.unsqueeze(1)).sum(-1).masked_fill(~attention.real, -torch.inf)  # (B, N)
            contexts.append((scores.softmax(-1).unsqueeze(-1) * attention.values).sum(1))
            total = total + contexts[-1] @ C.T
        if m is None:
            h = torch.sigmoid(total)
        else:
            i, f, g, o = total.chunk(4, -1)
            m = torch.sigmoid(f) * m + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(m)
        hs.append(h)
    return torch.stack(hs), torch.stack(contexts) if contexts else None


def with_gradients(run, layer):
    """What `run` gives for a layer, and the gradients of all its leaves for a random weight on every number given."""
    h, c = run(*layer.arguments)
    given = [h] if c is None else [h, c]
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(part.shape, generator=generator).to(part) for part in given]
    value = sum((part * weight).sum() for part, weight in zip(given, weights, strict=True))
    return [*(part.detach() for part in given), *torch.autograd.grad(value, layer.leaves)]
