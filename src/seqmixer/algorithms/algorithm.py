"""What every algorithm is: a module whose `forward` is the loss of a batch. What it learns itself is its own."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from seqmixer.algorithms.reference import divergence, drift_to_go, frozen, reference_log_prob
from seqmixer.decoding import generate
from seqmixer.errors import ConfigError
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

    reference: SequenceModel | None

    def __init__(self, reward: Reward | None = None, generate: Generate = generate, kl: float = 0.0) -> None:
        super().__init__()
        self.reward = reward  # None: learns from words alone
        self.generate = generate
        self.kl = kl  # beta: what a nat of drift from the reference costs, in units of reward
        self.register_module("reference", None)

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
        if self.kl and self.reference is None:
            self.reference = frozen(model)

    def drift(self, source: Tensor, words: Tensor, log_p: Tensor, free: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """What each step pays for the KL to the reference, (B, T), and `kl` for the log; without a KL term nothing."""
        if not self.kl:
            return log_p.new_zeros(()), {}
        if self.reference is None:
            raise ConfigError(f"kl = {self.kl:g}, but there is no model to be held to; call remember(model) first")
        log_ref = reference_log_prob(self.reference, source, words)  # (B, T)
        return self.kl * drift_to_go(log_p, log_ref, free), {"kl": divergence(log_p, log_ref, free)}

    @abstractmethod
    def loss(self, model: SequenceModel, batch: Batch, stage: Stage, dial: Tensor) -> Loss:
        """The loss of one batch, its dial a () tensor."""

    @abstractmethod
    def stage(self, epoch: int) -> Stage:
        """What this epoch does."""
