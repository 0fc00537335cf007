"""What every algorithm is: a module whose `forward` is the loss of a batch. What it learns itself is its own."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import nn

from seqmixer.decoding import generate
from seqmixer.types import Batch, Generate, Loss, Reward, SequenceModel


@dataclass(frozen=True)
class Stage:
    """What an epoch does."""

    label: str  # for the reader of the log
    sampled: bool  # whether the model is paid for words of its own (REINFORCE)


class Algorithm(nn.Module, ABC):
    """(model, batch, epoch) -> Loss. Sums over steps, mean over sequences."""

    def __init__(self, reward: Reward | None = None, generate: Generate = generate) -> None:
        super().__init__()
        self.reward = reward  # None: learns from words alone
        self.generate = generate

    @abstractmethod
    def forward(self, model: SequenceModel, batch: Batch, epoch: int) -> Loss:
        """The loss of one batch. Epochs count from 0."""

    @abstractmethod
    def stage(self, epoch: int) -> Stage:
        """What this epoch does."""
