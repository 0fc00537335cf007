"""What every algorithm is: a module whose `forward` is the loss of a batch. What it learns itself is its own."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from seqmixer.decoding import generate
from seqmixer.types import Batch, Generate, Loss, Reward, SequenceModel


@dataclass(frozen=True)
class Stage:
    """What an epoch does."""

    label: str  # for the reader of the log
    sampled: bool  # whether the model is paid for words of its own (REINFORCE)
    program: str  # epochs of the same program differ in the dial only
    dial: float = 0  # the number that a schedule turns: MIXER's s, DAD's probability


class Algorithm(nn.Module, ABC):
    """(model, batch, epoch) -> Loss: sums over steps, means over sentences."""

    reward: Reward | None = None  # None: learns from words alone

    def __init__(self, generate: Generate = generate) -> None:
        super().__init__()
        self.generate = generate

    def forward(self, model: SequenceModel, batch: Batch, epoch: int, dial: Tensor | None = None) -> Loss:
        """The loss of one batch. Epochs count from 0.

        `dial` is the dial of this epoch's stage as a tensor, so that a captured program can be used for all epochs that
        differ in nothing else. Default: it is made here.
        """
        stage = self.stage(epoch)
        if dial is None:
            dial = torch.tensor(stage.dial, device=batch.target.device)
        return self.loss(model, batch, stage, dial)

    def remember(self, model: SequenceModel) -> None:
        """The model is about to be paid for its own words: with a KL term, what it is now is what it is held to."""

    @abstractmethod
    def loss(self, model: SequenceModel, batch: Batch, stage: Stage, dial: Tensor) -> Loss:
        """The loss of one batch, its dial a () tensor."""

    @abstractmethod
    def stage(self, epoch: int) -> Stage:
        """What this epoch does."""
