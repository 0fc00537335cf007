"""What every algorithm is: it collects candidates where it learns from samples, then computes the loss of a batch."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from seqmixer.decoding import generate
from seqmixer.errors import ConfigError
from seqmixer.rewards import Pending
from seqmixer.schedules import forced_words
from seqmixer.settings import Section, refuse_unread
from seqmixer.types import Batch, Generate, Loss, Reward, SequenceModel


class AlgorithmSettings(Section):
    """The table [algorithm]: what all algorithms have. Each adds its own."""

    rewarded: ClassVar[bool] = False  # whether it learns from rewards

    name: str
    """How the model learns."""
    xent_epochs: int = Field(20, ge=0, le=100_000)
    """N^XENT: epochs of pure XENT at the beginning (DAD, E2E, and with anneal, as in MIXER)."""
    mixed_epochs: int = Field(5, ge=0, le=100_000)
    """N^XE+R: epochs of each later stage (E2E, anneal)."""
    delta: int = Field(2, ge=1)
    """Delta: how many words each stage hands from XENT to the samples (anneal), or to its own k best (E2E)."""
    to_zero: bool = True
    """End with a stage of s = 0: no word is left to XENT (E2E, anneal). Without it the last s is 1 or more."""

    @model_validator(mode="after")
    def is_read(self) -> Self:
        for name, why in self.unread(vars(self)).items():
            refuse_unread(self, "algorithm", [name], why)
        return self

    @property
    def annealed(self) -> bool:
        """Whether XENT comes first, for xent_epochs."""
        return False

    def require_epochs(self) -> None:
        """Refuse a schedule without any epoch."""
        if not self.xent_epochs and not self.mixed_epochs:
            raise ValueError("algorithm.xent_epochs and algorithm.mixed_epochs are 0: there is nothing to train")

    def schedule(self, length: int) -> list[int]:
        """Algorithm 1: s by epoch. Its length is that of a run, whatever the algorithm."""
        return forced_words(length, self.delta, self.xent_epochs, self.mixed_epochs, self.to_zero)

    @property
    def starts_rewarded(self) -> bool:
        """Whether rewards are learnt from in the very first epoch."""
        return self.rewarded and not (self.annealed and self.xent_epochs)

    @property
    def learns_again(self) -> bool:
        """Whether it compares the model with itself at the time of sampling; dropout would blur that."""
        return False

    @property
    def sentences(self) -> int:
        """How many sentences are scored for each of a batch."""
        return 1

    @property
    def holds_logits(self) -> bool:
        """Whether a step holds the scores of all words at all steps at once."""
        return False

    @property
    def holds_reference(self) -> bool:
        """Whether a frozen copy of the model is kept."""
        return False


@dataclass(frozen=True)
class Parts:
    """What an algorithm is built from beside its settings."""

    reward: Reward
    features: int  # H, the width of the model's hidden states
    length: int  # T
    words: int  # V
    epochs: int  # of the run
    generate: Generate = generate


@dataclass(frozen=True)
class Stage:
    """What an epoch does."""

    label: str  # for the reader of the log
    program: str  # epochs of the same program differ in the scheduled value only
    scheduled: float = 0  # the value that a schedule has for it: MIXER's s, DAD's probability
    rewarded: bool = False  # whether the model learns from the rewards of its samples
    sets_reference: bool = False  # whether the model where it begins is kept as a reference; so it is where rewarded


@dataclass(frozen=True)
class Candidates:
    """k sentences for each source of a batch, in a row, and their rewards."""

    words: Tensor  # (Bk, T) forced words, then generated ones; PAD after EOS
    generated: Tensor  # (Bk, T) true on the model's own words, up to and including EOS
    k: int
    reward: Pending  # () -> (Bk,); computed while the candidates are scored
    log_ref: Tensor | None = None  # (Bk, T) log p of the words under the reference of the KL term
    log_p: Tensor | None = None  # (Bk, T) under the model that sampled them; None: they are learnt from only once
    before: Pending | None = (
        None  # () -> (Bk, T) where words are rewarded one by one: the reward of what is before each
    )
    greedy: "Candidates | None" = None  # where rewards are compared with its: the greedy sentence of each source

    def sentences(self, values: Tensor) -> Tensor:
        """The sum of values, such as log p, over the model's own words of each sentence.  (Bk, T) -> (B, k)"""
        return torch.where(self.generated, values, 0).sum(-1).view(-1, self.k)

    def to_go(self) -> Tensor:
        """The reward that is still to come at each step, a constant.  -> (Bk, T), or (Bk, 1) where it is all of it"""
        r = self.reward().detach().unsqueeze(-1)
        return r if self.before is None else r - self.before().detach()

    def take(self, which: slice) -> "Candidates":
        """Some of the candidates of each source."""

        def part(rows: Any) -> Any:
            if callable(rows):
                return lambda: part(rows())
            return None if rows is None else rows.unflatten(0, (-1, self.k))[:, which].flatten(0, 1)

        rows = {field.name: part(getattr(self, field.name)) for field in fields(self) if field.name != "k"}
        return Candidates(**rows, k=len(range(self.k)[which]))


class Algorithm(nn.Module, ABC):
    """Collect, then learn: the loss of a batch, summed over steps, averaged over sentences."""

    Settings: ClassVar[type[AlgorithmSettings]] = AlgorithmSettings
    label: ClassVar[str]  # in the log and in reports
    updates: int = 1  # of the parameters from one set of candidates
    reward: Reward | None = None  # None: learns from the references alone

    def __init__(self, generate: Generate = generate) -> None:
        super().__init__()
        self.generate = generate

    @classmethod
    def of(cls, settings: Any, parts: Parts) -> Self:
        """The algorithm that a config describes, its settings an instance of `Settings`."""
        raise ConfigError(f"{cls.__name__} cannot be made from a config; give it a classmethod of(settings, parts)")

    def forward(self, model: SequenceModel, batch: Batch, epoch: int, scheduled: Tensor | None = None) -> Loss:
        """The loss of one batch. Epochs count from 0.

        `scheduled` is that of this epoch's stage as a tensor, so that a captured program can be used for all epochs
        that differ in nothing else. Default: it is made here.
        """
        stage = self.stage(epoch)
        if scheduled is None:
            scheduled = torch.tensor(stage.scheduled, device=batch.target.device)
        return self.loss(model, batch, self.collect(model, batch, stage, scheduled), stage, scheduled)

    def set_reference(self, model: SequenceModel) -> None:
        """Called before the first epoch with rewards: a KL term keeps a frozen copy of the model as its reference."""

    @abstractmethod
    def stage(self, epoch: int) -> Stage:
        """What this epoch does."""

    def collect(self, model: SequenceModel, batch: Batch, stage: Stage, scheduled: Tensor) -> Candidates | None:
        """Let the model write the sentences that it learns from, without gradient. None: the references are enough."""
        return None

    @abstractmethod
    def loss(
        self, model: SequenceModel, batch: Batch, candidates: Candidates | None, stage: Stage, scheduled: Tensor
    ) -> Loss:
        """The loss of one batch, with gradient; the scheduled value is a () tensor."""
