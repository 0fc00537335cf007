"""What the parts of seqmixer have in common: special words, records, and the contracts between parts.

Shape letters, used in every file: B batch, T target length, N source length, V vocabulary, E embedding, H hidden,
R references, L reference length, D image feature, K hypotheses.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn

from seqmixer.losses import log_prob

PAD, BOS, EOS, UNK = 0, 1, 2, 3  # the first four ids of every vocabulary; BOS is the paper's w_1 = ∅
NEVER = -1e4  # a logit of probability 0 in every float type, without the NaN that -inf brings to entropies

Context = Any  # what `encode` returns: nested tuples of tensors, batch first
State = Any  # what `step` carries: nested tuples of tensors, batch first
Meta = Mapping[str, Any]  # of one sentence: "source" (str) and "references" (list of str), and any further column


@dataclass(frozen=True)
class Batch:
    """Sentences to learn from. After EOS comes PAD; a target cropped at T has no EOS."""

    source: Tensor  # (B, N) words; or (B, D) image features; or (B, 0) where there is no context
    target: Tensor  # (B, T) the reference that is learnt from
    references: Tensor  # (B, R, L) all references; a missing one is all PAD
    meta: Sequence[Meta] = ()

    def __len__(self) -> int:
        return len(self.target)

    @property
    def mask(self) -> Tensor:
        """(B, T) true up to and including EOS."""
        return self.target != PAD

    def repeat(self, times: int) -> "Batch":
        """Every sentence, `times` in a row."""
        if times == 1:
            return self
        source, target, references = repeat((self.source, self.target, self.references), times)
        return Batch(source, target, references, [meta for meta in self.meta for _ in range(times)])

    def to(self, device: Any) -> "Batch":
        return Batch(self.source.to(device), self.target.to(device), self.references.to(device), self.meta)

    def rollout(self, words: Tensor, start: int | Tensor = 0, k: int = 1) -> "Rollout":
        """The rollout of these words (B, T), the first `start` of them forced."""
        return Rollout(words, self.references, start, self.source, self.meta, k)


@dataclass(frozen=True)
class Rollout:
    """The input of a reward: finished sequences and their references."""

    words: Tensor  # (B, T) w^g; EOS and PAD as in a target
    references: Tensor  # (B, R, L)
    start: int | Tensor = 0  # or (): the first `start` words were given, not written by the model (MIXER's s)
    source: Tensor | None = None  # (B, N), (B, D) or (B, 0)
    meta: Sequence[Meta] = ()
    k: int = 1  # so many sentences in a row are for one source


Reward = Callable[[Rollout], Tensor]  # -> (B,) one number per sequence, higher is better

Choose = Callable[[Tensor], Tensor]  # (B, V) logits -> (B,) words: greedy, sample, ...


@dataclass(frozen=True)
class Loss:
    """The result of an algorithm: the value to differentiate, and the metrics to log."""

    value: Tensor  # ()
    metrics: dict[str, Tensor] = field(default_factory=dict)  # each a tally, detached


def repeat(tree: Any, times: int) -> Any:
    """Every row of every tensor in nested tuples, `times` in a row."""
    if times == 1:
        return tree
    if isinstance(tree, Tensor):
        return tree.repeat_interleave(times, 0)
    return tuple(repeat(branch, times) for branch in tree)


def tally(total: Tensor, count: Tensor | None = None) -> Tensor:
    """A mean before it is divided, so that the tallies of batches and of processes can be added.  (), () -> (2,)

    Without a count, it is the tally of one number.
    """
    return torch.stack([total.float(), torch.ones_like(total).float() if count is None else count.float()])


class SequenceModel(nn.Module, ABC):
    """The contract of every generator (Eqs. 1-2): six methods, and two made of them. No more is used to train it.

    h_{t+1} = phi(w_t, h_t, c_t),   w_{t+1} ~ softmax(o_{t+1})

    Contexts and states are nested tuples of tensors with the batch first, so that a search can reorder them.
    """

    fresh_logits: ClassVar[bool] = (
        False  # whether `logits` returns a new tensor each time, which may be changed in place
    )

    @abstractmethod
    def encode(self, source: Tensor) -> Context:
        """What the model knows before the first word."""

    @abstractmethod
    def start(self, context: Context) -> State:
        """h_1."""

    @abstractmethod
    def embed(self, words: Tensor) -> Tensor:
        """1(w) through M_i.  (...,) -> (..., E)"""

    @abstractmethod
    def step(self, x: Tensor, state: State, context: Context) -> tuple[Tensor, State]:
        """Eq. 1 for one word.  x is an *embedding*, (B, E), so that E2E may feed a mixture.  -> h (B, H), state"""

    @abstractmethod
    def logits(self, h: Tensor) -> Tensor:
        """o = M_o h, whatever it is for PAD and BOS.  (..., H) -> (..., V)"""

    @abstractmethod
    def unroll(self, words: Tensor, context: Context) -> Tensor:
        """Feed a known input sequence from the start state.  (B, T) -> h (B, T, H), equal to T steps"""

    @final
    def scores(self, h: Tensor) -> Tensor:
        """The scores before the softmax, from which every word is chosen: o, but NEVER for PAD and BOS.

        These stand around a sentence, never in it. Here they are excluded for every model.  (..., H) -> (..., V)
        """
        scores = self.logits(h)
        if not self.fresh_logits:
            scores = scores.clone()  # the model may keep what it returned
        scores[..., : BOS + 1] = NEVER  # PAD and BOS
        return scores

    def log_prob(self, h: Tensor, words: Tensor) -> Tensor:
        """log p_theta of words, the softmax of scores(h).  (B, T, H), (B, T) -> (B, T)

        A model may do this without holding the scores of the vocabulary at all steps at once.
        """
        return log_prob(self.scores(h), words)

    def precision(self) -> AbstractContextManager[Any]:
        """What the model computes in. A search is inside of it, so that weights are cast once for all words."""
        return nullcontext()

    def attention(self, words: Tensor, context: Context) -> Tensor | None:
        """How much each step of `unroll` attends to each word of the source, for people to see; None: not told.

        Each row sums to 1 and is 0 at padding.  (B, T) -> (B, T, N)
        """
        return None


Generate = Callable[[SequenceModel, Tensor, Tensor, Tensor, Choose], Tensor]  # see decoding.generate
