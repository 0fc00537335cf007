"""Reward augmented maximum likelihood, RAML (Norouzi et al. 2016): XENT on references with words replaced at random."""

import math
from dataclasses import replace
from typing import Literal, Self

import torch
from pydantic import Field
from torch import Tensor

from seqmixer.algorithms.algorithm import Algorithm, AlgorithmSettings, Candidates, Parts, Stage
from seqmixer.algorithms.diagnostics import over
from seqmixer.algorithms.xent import reference_loss
from seqmixer.types import EOS, UNK, Batch, Loss, SequenceModel


class RamlSettings(AlgorithmSettings):
    """[algorithm] with name = "raml"."""

    name: Literal["raml"] = "raml"
    tau: float = Field(0.85, ge=0, le=100)
    """RAML: temperature of the rewards that words are replaced by. The higher, the more of them; 0 is XENT."""


class Raml(Algorithm):
    """Learns from sentences drawn anew each time from q(y | y*), around the reference y*; the model samples nothing."""

    Settings = RamlSettings
    label = "RAML"

    def __init__(self, tau: float, vocabulary: int) -> None:
        super().__init__()
        self.vocabulary = vocabulary  # V
        self.probability = replaced_probability(tau, others=vocabulary - UNK - 1)

    @classmethod
    def of(cls, settings: RamlSettings, parts: Parts) -> Self:
        return cls(settings.tau, parts.words)

    def stage(self, epoch: int) -> Stage:
        return Stage(self.label, "raml")

    def loss(
        self, model: SequenceModel, batch: Batch, candidates: Candidates | None, stage: Stage, scheduled: Tensor
    ) -> Loss:
        words = edited(batch.target, self.probability, self.vocabulary)  # (B, T)
        loss = reference_loss(model, replace(batch, target=words), inputs=words)
        return Loss(loss.value, {**loss.metrics, "edited": over((words != batch.target).float(), batch.mask)})


def replaced_probability(tau: float, others: int) -> float:
    """How likely q replaces a word, by one of so many others; each other is as likely.

    q(y | y*) ~ exp(r(y, y*) / tau),   r = - (1 + log others) * the words in which y and y* differ

    over all y as long as y*: the Hamming distance d, a special case of the edit distance of the paper (Sec. 2.2). There
    are C(m, d) others^d sentences at distance d, so the number of edits is binomial: each word is replaced or not for
    itself, which is exactly what sampling d first and then the edits does. With the factor, which is that of the
    authors' code, tau means the same for every vocabulary: at tau = 1 the odds are 1/e.

    >>> round(replaced_probability(1.0, others=30_000), 4), replaced_probability(0.0, others=30_000)
    (0.2689, 0.0)
    """
    if tau == 0 or others < 1:
        return 0.0
    log_odds = math.log(others) - (1 + math.log(others)) / tau
    return 1 / (1 + math.exp(min(-log_odds, 700.0)))


def edited(words: Tensor, probability: float, vocabulary: int) -> Tensor:
    """References, each word but EOS replaced with this probability by any other word.  (B, T) -> (B, T)"""
    coin, which = torch.rand(2, *words.shape, dtype=torch.double, device=words.device)  # (B, T) each
    other = UNK + (which * (vocabulary - UNK - 1)).long()
    other = other + (other >= words).long()  # all but the word itself
    return torch.where((coin < probability) & (words > EOS), other, words)
