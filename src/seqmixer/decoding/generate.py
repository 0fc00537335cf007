"""The one decode loop: greedy search, sampling, MIXER's forced prefix and DAD's coins are arguments of it."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from seqmixer.kernels import draw
from seqmixer.types import BOS, EOS, PAD, Choose, Context, SequenceModel, repeat


def shift(words: Tensor) -> Tensor:
    """The inputs that go with `words` as outputs: BOS first, then each word but the last.  (B, T) -> (B, T)"""
    return torch.cat([torch.full_like(words[:, :1], BOS), words[:, :-1]], 1)


@torch.no_grad()
def generate(model: SequenceModel, source: Tensor, given: Tensor, keep: Tensor, choose: Choose) -> Tensor:
    """Write sentences word by word, keeping `given` where `keep` says so.  -> (B, T)

    Keep nothing and choose greedily: greedy search (Eq. 7). Keep nothing and sample: REINFORCE. Keep the first s words:
    MIXER. Keep by a coin per step: DAD. The model writes as it will be deployed: in eval mode, without dropout.

    Args:
        source: (B, N), (B, D) or (B, 0), what the model encodes; or B/k rows, each for k sentences in a row.
        given: (B, T) words to keep; its width is how many words are written.
        keep: (B, T) true where the given word is taken.
        choose: (B, V) -> (B,) picks the model's own word.
    """
    with deployed(model):
        context = read(model, source, len(given))
        state = model.start(context)
        word = torch.full_like(given[:, 0], BOS)
        words = []
        for t in range(given.shape[1]):
            h, state = model.step(model.embed(word), state, context)
            word = torch.where(keep[:, t], given[:, t], choose(model.scores(h)))
            words.append(word)
    return ended(torch.stack(words, 1))


def read(model: SequenceModel, source: Tensor, sentences: int) -> Context:
    """The context of B sentences from B/k sources: each is encoded once, for k sentences in a row."""
    return repeat(model.encode(source), sentences // len(source))


def ended(words: Tensor) -> Tensor:
    """Words with PAD after the first EOS or PAD.  (B, T) -> (B, T)"""
    end = (words == EOS) | (words == PAD)
    return words.masked_fill(end.cumsum(1) > end.int(), PAD)


def free(source: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """`given` and `keep` for writing `length` words with none given.  -> (B, T), (B, T)"""
    given = torch.full((len(source), length), PAD, device=source.device)
    return given, torch.zeros_like(given, dtype=torch.bool)


def greedy(logits: Tensor) -> Tensor:
    """The most likely word (Eq. 7).  (B, V) -> (B,)"""
    return logits.argmax(-1)


def sample(logits: Tensor) -> Tensor:
    """Draw from softmax(logits), Eq. 5.  (B, V) -> (B,)

    One uniform number a row is looked up in the cumulated probabilities: no synchronisation with the GPU, so that the
    loop can be captured, and V times fewer random numbers than the Gumbel trick needs.
    """
    return draw(logits, torch.rand(len(logits), dtype=torch.double, device=logits.device))


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
        log_p = model.log_prob(model.unroll(shift(words), model.encode(source)), words)  # (B, T)
    return torch.where(words != PAD, log_p, 0).sum(-1)


@contextmanager
def deployed(model: SequenceModel) -> Iterator[None]:
    """Eval mode for a while, in the precision of the model."""
    training = model.training
    model.eval()
    try:
        with model.precision():
            yield
    finally:
        model.train(training)
