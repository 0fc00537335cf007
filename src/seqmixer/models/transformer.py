"""A Transformer that is trained from scratch, as the recurrent models are: beyond the paper, behind the same contract.

Vaswani et al. (2017), with the norm before each part (Xiong et al. 2020); positions are learned, or rotary (Su et al.
2021). A decoder keeps its keys and values in tensors of fixed size, so that a search can reorder the rows of a state
and every step is the same program; a known sentence is one parallel pass.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqmixer.errors import ConfigError
from seqmixer.kernels import fused
from seqmixer.models.output import OutputLayer
from seqmixer.types import PAD, Context, SequenceModel, State

Rotation = tuple[Tensor, Tensor]  # cosine and sine, each (1 or B, 1, T, d/2), of every angle that a head turns by


@dataclass(frozen=True, kw_only=True)
class Blueprint:
    """How the layers of the encoder and of the decoder are made. Each of the heads has d = hidden / heads values."""

    hidden: int  # H
    heads: int
    feedforward: int  # the inner size of the feed-forward part
    layers: int  # of the decoder, and again of the encoder
    dropout: float = 0.0  # on embeddings, attention weights and what each part adds
    rotary: bool = True  # positions are rotations of queries and keys; else learned vectors, added to the words

    def __post_init__(self) -> None:
        if self.hidden % (2 * self.heads):
            raise ConfigError(
                f"hidden must be a multiple of twice the heads, so that the values of a head pair up; "
                f"got hidden = {self.hidden}, heads = {self.heads}"
            )


class Positions(nn.Module):
    """The position of a word: a vector added to its embedding, or a rotation of all queries and keys."""

    frequency: Tensor

    def __init__(self, blueprint: Blueprint, count: int) -> None:
        super().__init__()
        self.count = count
        self.learned = None if blueprint.rotary else nn.Embedding(count, blueprint.hidden)
        d = blueprint.hidden // blueprint.heads
        self.register_buffer("frequency", 10000.0 ** -(torch.arange(0, d, 2) / d), persistent=False)  # (d/2,)
        self.dropout = nn.Dropout(blueprint.dropout)

    def forward(self, x: Tensor, place: Tensor) -> tuple[Tensor, Rotation | None]:
        """(B, T, H) embeddings at `place` (1 or B, T) -> what the first layer reads, how every layer rotates"""
        if self.learned is None:
            angle = (place.unsqueeze(-1) * self.frequency).unsqueeze(1)  # (1 or B, 1, T, d/2)
            return self.dropout(x), (angle.cos(), angle.sin())
        # Sources longer than any seen in training share the last position.
        return self.dropout(x + self.learned(place.clamp(max=self.count - 1))), None


def rotate(x: Tensor, rotation: Rotation | None) -> Tensor:
    """Pairs of values, read as complex numbers, times e^{i place frequency}.  (B, heads, T, d) -> the same

    The dot product of two rotated vectors depends on the distance between their places only.
    """
    if rotation is None:
        return x
    cos, sin = (part.to(x.dtype) for part in rotation)
    real, imaginary = x.unflatten(-1, (-1, 2)).unbind(-1)  # (B, heads, T, d/2)
    return torch.stack([real * cos - imaginary * sin, real * sin + imaginary * cos], -1).flatten(-2)


class Layer(nn.Module):
    """Three residual parts, x + part(norm(x)): attention to itself, to the memory if there is one, feed-forward.

    attention:  softmax(q k^T / sqrt(d)) v  in each head
    """

    def __init__(self, blueprint: Blueprint, remembers: bool) -> None:
        super().__init__()
        H = blueprint.hidden
        self.heads, self.weight_dropout = blueprint.heads, blueprint.dropout
        self.dropout = nn.Dropout(blueprint.dropout)
        self.own_norm, self.own_qkv, self.own_out = nn.LayerNorm(H), nn.Linear(H, 3 * H), nn.Linear(H, H)
        self.remembers = remembers
        if remembers:
            self.memory_norm, self.memory_q = nn.LayerNorm(H), nn.Linear(H, H)
            self.memory_kv, self.memory_out = nn.Linear(H, 2 * H), nn.Linear(H, H)
        self.wide_norm, self.wide = nn.LayerNorm(H), nn.Linear(H, blueprint.feedforward)
        self.narrow = nn.Linear(blueprint.feedforward, H)

    def own(self, x: Tensor, rotation: Rotation | None) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v of the attention to itself.  (B, T, H) -> three of (B, heads, T, d)"""
        q, k, v = (self.split(part) for part in self.own_qkv(self.own_norm(x)).chunk(3, -1))
        return rotate(q, rotation), rotate(k, rotation), v

    def memory(self, memory: Tensor) -> tuple[Tensor, ...]:
        """k and v of the attention to the memory, the same for every step.  (B, N, H) -> two of (B, heads, N, d)"""
        k, v = self.memory_kv(memory).chunk(2, -1)
        return self.split(k), self.split(v)

    def forward(
        self, x: Tensor, own: tuple[Tensor, Tensor, Tensor], mask: Tensor, memory: tuple[Tensor, ...], real: Tensor
    ) -> Tensor:
        """(B, T, H) -> (B, T, H)

        Args:
            own: q of these words; k and v of all words, (B, heads, ..., d).
            mask: true where a word may look; (B, 1, 1, N), (B, 1, 1, T) or (T, T).
            memory: k and v of `memory`; nothing where there is none.
            real: (B, N) true where the memory is no padding.
        """
        x = x + self.dropout(self.own_out(self.attention(*own, mask)))
        if self.remembers:
            q = self.split(self.memory_q(self.memory_norm(x)))  # (B, heads, T, d)
            k, v = memory
            x = x + self.dropout(self.memory_out(self.attention(q, k, v, real[:, None, None])))
        return x + self.dropout(self.narrow(F.gelu(self.wide(self.wide_norm(x)))))

    def attention(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        dropout = self.weight_dropout if self.training else 0.0
        heads = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)  # (B, heads, T, d)
        return heads.transpose(1, 2).flatten(2)  # (B, T, H)

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B, T, H) -> (B, heads, T, d)


def each(layers: nn.ModuleList) -> Iterable[Layer]:
    """The layers with their type, which a ModuleList forgets."""
    return cast(Iterable[Layer], layers)


class Memory(nn.Module, ABC):
    """The encoded source that a decoder attends to."""

    @abstractmethod
    def forward(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """-> (B, N, H), and (B, N) true where it is no padding"""


class TextMemory(Memory):
    """The Transformer's encoder: every source word, having looked at all others."""

    def __init__(self, blueprint: Blueprint, vocab_size: int, positions: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocab_size, blueprint.hidden)
        self.positions = Positions(blueprint, positions)
        self.layers = nn.ModuleList([Layer(blueprint, remembers=False) for _ in range(blueprint.layers)])
        self.norm = nn.LayerNorm(blueprint.hidden)

    def forward(self, source: Tensor) -> tuple[Tensor, Tensor]:
        real = source != PAD  # (B, N)
        place = torch.arange(source.shape[1], device=source.device).unsqueeze(0)  # (1, N)
        x, rotation = self.positions(self.words(source), place)  # (B, N, H)
        for layer in each(self.layers):
            x = layer(x, layer.own(x, rotation), real[:, None, None], (), real)
        return self.norm(x), real


class ImageMemory(Memory):
    """Image features as a memory of one place."""

    def __init__(self, blueprint: Blueprint, features: int) -> None:
        super().__init__()
        self.project = nn.Linear(features, blueprint.hidden)
        self.norm = nn.LayerNorm(blueprint.hidden)

    def forward(self, source: Tensor) -> tuple[Tensor, Tensor]:
        real = torch.ones_like(source[:, :1], dtype=torch.bool)  # (B, 1)
        return self.norm(self.project(source)).unsqueeze(1), real  # (B, D) -> (B, 1, H)


class Transformer(SequenceModel):
    """A decoder over a memory; without one (None) it is a plain language model.

    A context is (real, (k, v) of the memory for each layer). A state is (position, (k, v) of the words so far for each
    layer): (B,), and (B, heads, length, d) of which the first `position` count.
    """

    fresh_logits = True

    def __init__(self, blueprint: Blueprint, memory: Memory | None, vocab_size: int, length: int) -> None:
        super().__init__()
        self.blueprint = blueprint
        self.length = length  # the most words that can be fed
        self.features = blueprint.hidden  # the size of what `step` returns as h
        self.memory = memory
        self.M_i = nn.Embedding(vocab_size, blueprint.hidden)
        self.positions = Positions(blueprint, length)
        self.layers = nn.ModuleList([Layer(blueprint, memory is not None) for _ in range(blueprint.layers)])
        self.norm = nn.LayerNorm(blueprint.hidden)
        self.M_o = OutputLayer(blueprint.hidden, vocab_size)

    def encode(self, source: Tensor) -> Context:
        if self.memory is None:
            return source != PAD, tuple(() for _ in self.layers)  # (B, 0)
        memory, real = self.memory(source)  # (B, N, H), (B, N)
        return real, tuple(layer.memory(memory) for layer in each(self.layers))

    def start(self, context: Context) -> State:
        real, _ = context
        heads = self.blueprint.heads
        shape = len(real), heads, self.length, self.blueprint.hidden // heads
        zero = self.M_i.weight.new_zeros(shape)  # no step writes in place, so that all may share it
        return real.new_zeros(len(real), dtype=torch.long), tuple((zero, zero) for _ in self.layers)

    def embed(self, words: Tensor) -> Tensor:
        return self.M_i(words)

    def step(self, x: Tensor, state: State, context: Context) -> tuple[Tensor, State]:
        position, caches = state
        real, memories = context
        x, rotation = self.positions(x.unsqueeze(1), position.unsqueeze(1))  # (B, 1, H)
        mask = torch.arange(self.length, device=x.device) <= position.unsqueeze(1)  # (B, length)
        new: list[tuple[Tensor, ...]] = []
        for layer, cache, memory in zip(each(self.layers), caches, memories, strict=True):
            q, *own = layer.own(x, rotation)
            k, v = (written(old, part, position) for old, part in zip(cache, own, strict=True))
            x = layer(x, (q, k, v), mask[:, None, None], memory, real)
            new.append((k, v))
        return self.norm(x).squeeze(1), (position + 1, tuple(new))

    def logits(self, h: Tensor) -> Tensor:
        return self.M_o(h)  # (..., H) -> (..., V)

    def log_prob(self, h: Tensor, words: Tensor) -> Tensor:
        return self.M_o.log_prob(h, words) if fused() else super().log_prob(h, words)

    def unroll(self, words: Tensor, context: Context) -> Tensor:
        T = words.shape[1]
        if self.length < T:
            raise ConfigError(f"{T} words were fed to a transformer built for at most {self.length}; raise its length")
        real, memories = context
        steps = torch.arange(T, device=words.device)  # (T,)
        x, rotation = self.positions(self.embed(words), steps.unsqueeze(0))  # (B, T, H)
        causal = steps <= steps.unsqueeze(1)  # (T, T) a word looks at itself and back
        for layer, memory in zip(each(self.layers), memories, strict=True):
            x = layer(x, layer.own(x, rotation), causal, memory, real)
        return self.norm(x)


def written(cache: Tensor, new: Tensor, position: Tensor) -> Tensor:
    """A copy of `cache` (B, heads, length, d) with `new` (B, heads, 1, d) at `position` (B,).

    Not in place, because hypotheses and the backward pass share what was there. Beyond the end it fails.
    """
    return cache.scatter(2, position.view(-1, 1, 1, 1).expand_as(new), new.to(cache.dtype))
