"""One update of the parameters: loss, backward, clipping, optimisers."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from seqmixer.algorithms import Algorithm
from seqmixer.config import TrainingConfig
from seqmixer.training.log import Clock
from seqmixer.types import Batch, SequenceModel


class Step:
    """step(batch, epoch) -> metrics.

    The algorithm's own parameters (the baseline) have an Adam of their own: its steps are bounded whatever the scale of
    the hidden state, so the regressor cannot diverge, and its gradient does not count when the model's is clipped.
    """

    def __init__(self, model: SequenceModel, algorithm: Algorithm, settings: TrainingConfig, clock: Clock) -> None:
        self.model, self.algorithm, self.settings, self.clock = model, algorithm, settings, clock
        self.optimizer = self.fresh(settings.lr)
        own = list(algorithm.parameters())
        self.own_optimizer = torch.optim.Adam(own, lr=settings.baseline_lr) if own else None

    def fresh(self, rate: float) -> torch.optim.Optimizer:
        """A new optimiser of the model, without memory."""
        parameters: Iterable[nn.Parameter] = self.model.parameters()
        if self.settings.optimizer == "sgd":
            return torch.optim.SGD(parameters, lr=rate)
        return torch.optim.Adam(parameters, lr=rate)

    @property
    def rate(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"])

    @rate.setter
    def rate(self, value: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = value

    def __call__(self, batch: Batch, epoch: int) -> dict[str, Tensor]:
        with self.clock.time("forward"):
            loss = self.algorithm(self.model, batch, epoch)
        with self.clock.time("backward"):
            self.model.zero_grad(set_to_none=True)
            self.algorithm.zero_grad(set_to_none=True)
            loss.value.backward()
            norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip)
            self.optimizer.step()
            if self.own_optimizer:
                self.own_optimizer.step()
        return {**loss.metrics, "loss": loss.value.detach(), "gradient": norm.detach()}
