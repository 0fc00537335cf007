"""The one decode loop: greedy search, sampling, MIXER's given prefix and DAD's coins are arguments of it."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from seqmixer.losses import log_prob
from seqmixer.types import BOS, EOS, PAD, Choose, SequenceModel


def shift(words: Tensor) -> Tensor:
    """The inputs that go with `words` as outputs: BOS first, then each word but the last.  (B, T) -> (B, T)"""
    return torch.cat([torch.full_like(words[:, :1], BOS), words[:, :-1]], 1)


@torch.no_grad()
def generate(model: SequenceModel, source: Tensor, given: Tensor, keep: Tensor, choose: Choose) -> Tensor:
    """Write sentences word by word, keeping `given` where `keep` says so.  -> (B, T)

    Keep nothing and choose greedily: greedy search (Eq. 7). Keep nothing and sample: REINFORCE. Keep the first s words:
    MIXER. Keep by a coin per step: DAD. The model writes as it will be deployed: in eval mode, without dropout.

    Args:
        source: (B, N), (B, D) or (B, 0), what the model encodes.
        given: (B, T) words to keep; its width is how many words are written.
        keep: (B, T) true where the given word is taken.
        choose: (B, V) -> (B,) picks the model's own word.
    """
    with deployed(model):
        context = model.encode(source)
        state = model.start(context)
        word = torch.full_like(given[:, 0], BOS)
        words = []
        for t in range(given.shape[1]):
            h, state = model.step(model.embed(word), state, context)
            ended = (word == EOS) | (word == PAD)
            own = choose(model.logits(h)).masked_fill(ended, PAD)
            word = torch.where(keep[:, t], given[:, t], own)
            words.append(word)
    return torch.stack(words, 1)


def free(source: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """`given` and `keep` for writing `length` words with none given.  -> (B, T), (B, T)"""
    given = torch.full((len(source), length), PAD, device=source.device)
    return given, torch.zeros_like(given, dtype=torch.bool)


def greedy(logits: Tensor) -> Tensor:
    """The most likely word (Eq. 7).  (B, V) -> (B,)"""
    return logits.argmax(-1)


def sample(logits: Tensor) -> Tensor:
    """Draw from softmax(logits), Eq. 5.  (B, V) -> (B,)

    One uniform number a row is looked up in the cumulated probabilities: no question to the device, so a CUDA graph can
    hold it, and V times fewer random numbers than the Gumbel trick needs. Cumulated in double precision, so that rare
    words of a large vocabulary keep their share.
    """
    cumulated = logits.softmax(-1, dtype=torch.double).cumsum(-1)  # (B, V)
    u = torch.rand_like(cumulated[:, :1]) * cumulated[:, -1:]  # (B, 1)
    return torch.searchsorted(cumulated, u, right=True).squeeze(-1).clamp(max=logits.shape[-1] - 1)


def sampler(temperature: float, top_k: int | None) -> Choose:
    """Sampling from softmax(logits / temperature), restricted to the `top_k` most likely words if given."""

    def choose(logits: Tensor) -> Tensor:
        if top_k is not None and top_k < logits.shape[-1]:
            least = logits.topk(top_k, -1).values[:, -1:]  # (B, 1)
            logits = logits.masked_fill(logits < least, -torch.inf)
        return sample(logits / temperature)

    return choose


@torch.no_grad()
def score(model: SequenceModel, source: Tensor, words: Tensor) -> Tensor:
    """log p_theta of finished sentences, nothing counted after EOS.  (B, T) -> (B,)"""
    with deployed(model):
        o = model.logits(model.unroll(shift(words), model.encode(source)))  # (B, T, V)
    return (log_prob(o, words) * (words != PAD)).sum(-1)


@contextmanager
def deployed(model: SequenceModel) -> Iterator[None]:
    """Eval mode for a while."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)
