"""Data as Demonstrator, DAD (Sec. 3.1.2), also known as scheduled sampling."""

from collections.abc import Sequence

import torch
from torch import Tensor

from seqmixer.algorithms.algorithm import Algorithm, Stage
from seqmixer.algorithms.xent import XENT, reference_loss
from seqmixer.decoding import generate, sample
from seqmixer.schedules import at
from seqmixer.types import EOS, Batch, Choose, Generate, Loss, SequenceModel, tally


class Dad(Algorithm):
    """XENT whose input is, by a coin per step, the reference word or the model's own; the target never changes.

    Gradients do not pass through the chosen words. The model's EOS is never fed: the reference goes on, and so must the
    sentence that is fed (the paper does not say; docs/deviations.md).
    """

    def __init__(self, truth: Sequence[float], choose: Choose = sample, generate: Generate = generate) -> None:
        super().__init__(generate=generate)
        self.truth = truth  # by epoch: the probability of feeding the reference word
        self.choose = choose

    def loss(self, model: SequenceModel, batch: Batch, stage: Stage, dial: Tensor) -> Loss:
        fed, truth = batch.target, torch.ones_like(dial)
        if stage is not XENT:
            truth = dial
            keep = torch.rand(fed.shape, device=fed.device) < truth  # (B, T)
            fed = self.generate(model, batch.source, batch.target, keep, self.word)
        loss = reference_loss(model, batch, inputs=fed)
        return Loss(loss.value, {**loss.metrics, "truth": tally(truth)})

    def word(self, logits: Tensor) -> Tensor:
        """The model's own choice among words, without EOS.  (B, V) -> (B,)"""
        end = torch.arange(logits.shape[-1], device=logits.device) == EOS
        return self.choose(logits.masked_fill(end, -torch.inf))

    def stage(self, epoch: int) -> Stage:
        p = at(self.truth, epoch)
        return XENT if p == 1 else Stage("DAD, the model's own words fed more and more", False, "dad", p)
