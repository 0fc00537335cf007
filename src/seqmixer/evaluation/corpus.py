"""Decode a split, score it, and say how: every score carries a signature, and the counts it was made of."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from seqmixer import __version__, files
from seqmixer.data import Split, Table, Task, in_order
from seqmixer.decoding import GREEDY, Search, deployed, shift
from seqmixer.evaluation.effects import effects, hesitation
from seqmixer.losses import cross_entropy
from seqmixer.parallel import ranks
from seqmixer.rewards import Metric
from seqmixer.types import Batch, SequenceModel

SCORES = "scores.json"
HESITATIONS = 500  # sentences, or a little more, that the entropy of a split is measured on


@dataclass(frozen=True)
class TestScore:
    """The score of the best model on the test split, by one more metric."""

    test: float
    signature: str


@dataclass(frozen=True)
class Scores:
    """scores.json: the scores of a run, by the metric that selected the best model, and by all further ones."""

    metric: str
    test: float
    valid: float
    epoch: int  # of the best model
    signature: str
    others: Mapping[str, TestScore] = field(default_factory=dict)
    effects: Mapping[str, float] = field(default_factory=dict)  # of the test sentences, as docs/log.md has them


def read_scores(run: Path) -> Scores:
    found: Scores = files.read_json(run / SCORES, Scores)
    return found


@dataclass(frozen=True)
class Scored:
    """The score of a split by one metric."""

    metric: str
    score: float  # in 0..metric.highest
    signature: str
    statistics: Tensor = field(repr=False)  # (n, S) counts of each sentence: together the score, resampled its spread


@dataclass(frozen=True)
class Evaluation:
    """The sentences that a model wrote for a split, and their scores."""

    scored: Sequence[Scored]  # by each metric
    hypotheses: list[str] = field(repr=False)
    references: list[list[str]] = field(repr=False)  # as they were before they became words, uncropped
    sources: list[str] = field(repr=False)
    effects: Mapping[str, float] = field(default_factory=dict)

    @property
    def score(self) -> float:
        """By the first metric, as the signature and the statistics."""
        return self.scored[0].score

    @property
    def signature(self) -> str:
        return self.scored[0].signature

    @property
    def statistics(self) -> Tensor:
        return self.scored[0].statistics


def evaluate(
    model: SequenceModel,
    task: Task,
    split: Split,
    *metrics: Metric,
    search: Search = GREEDY,
    batch_size: int = 256,
) -> Evaluation:
    """Decode a split, score it by one or more metrics, measure side effects.

    References are cropped at T, as the paper's are.
    """

    def counted(batch: Batch) -> tuple[Tensor, ...]:
        words = search.best(model, batch.source, task.length)  # (B, T)
        rollout = batch.rollout(words)
        some = slice(None, None, apart)
        nats = hesitation(model, batch.source[some], words[some])  # (2,)
        return words, nats, *(metric.statistics(rollout) for metric in metrics)

    table = Table.of(split, device_of(model))
    apart = max(1, len(split) // HESITATIONS)
    in_turn = in_order(table, batch_size, task.length)
    parts_of_words, nats, *rows = zip(*ranks.spread(in_turn, counted), strict=True)
    words = torch.cat(parts_of_words)  # (n, T)
    scored = []
    for metric, parts in zip(metrics, rows, strict=True):
        statistics = torch.cat(parts).cpu()
        how = signature(metric, task.length, len(split), search)
        scored.append(Scored(metric.name, float(metric.corpus(statistics)), how, statistics))
    return Evaluation(
        scored,
        hypotheses=[task.target_vocab.decode(row) for row in words.tolist()],
        references=[list(meta["references"]) for meta in split.meta],
        sources=[str(meta["source"]) for meta in split.meta],
        effects=effects(words, table, torch.stack(nats).sum(0)),
    )


@torch.no_grad()
def perplexity(model: SequenceModel, task: Task, split: Split, batch_size: int = 256) -> float:
    """exp of the mean cross entropy (Eq. 6) of a word of the first references, EOS included, cropped at T."""

    def surprise(batch: Batch) -> tuple[Tensor, Tensor]:
        h = model.unroll(shift(batch.target), model.encode(batch.source))  # (B, T, H)
        return cross_entropy(model.log_prob(h, batch.target), batch.mask).double(), batch.mask.sum()

    table = Table.of(split, device_of(model))
    with deployed(model):
        in_turn = in_order(table, batch_size, task.length)
        total, words = map(sum, zip(*ranks.spread(in_turn, surprise), strict=True))
    return math.exp(min(float(total / words), 700.0))  # a diverged model has a number too


def signature(metric: Metric, length: int, sentences: int, search: Search) -> str:
    """How a score was made; two scores compare only where it is equal."""
    return f"{metric.signature}|cut:{length}|{search.signature}|n:{sentences}|seqmixer:{__version__}"


def device_of(model: SequenceModel) -> torch.device:
    return next(model.parameters()).device
