"""Decode a split, score it, and say how: every score carries a signature, and the counts it was made of."""

import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from seqmixer import __version__, files
from seqmixer.data import Split, Table, Task, in_order
from seqmixer.decoding import deployed, fast, free, greedy, shift
from seqmixer.losses import cross_entropy
from seqmixer.parallel import ranks
from seqmixer.rewards import Metric
from seqmixer.types import Batch, SequenceModel

SCORES = "scores.json"


@dataclass(frozen=True)
class Scores:
    """scores.json: what came of a run."""

    metric: str
    test: float
    valid: float
    epoch: int  # of the best model
    signature: str


def read_scores(run: Path) -> Scores:
    found: Scores = files.read_json(run / SCORES, Scores)
    return found


@dataclass(frozen=True)
class Evaluation:
    """What a model wrote for a split, and what it scores."""

    score: float  # in 0..metric.highest, which is 100 but for CIDEr-D
    signature: str
    hypotheses: list[str]
    references: list[list[str]]  # as they were before they became words of the vocabulary, uncropped
    statistics: Tensor  # (n, S) the counts of each sentence: all together make the score, resampled rows its spread


def evaluate(
    model: SequenceModel,
    task: Task,
    split: Split,
    metric: Metric,
    *,
    beam: int = 1,
    length_penalty: float = 0.0,
    batch_size: int = 256,
) -> Evaluation:
    """Score greedy search (beam 1) or beam search on a split. References are cropped at T, as the paper's are."""

    def counted(batch: Batch) -> tuple[Tensor, Tensor]:
        words = search(model, batch.source, task.length, beam, length_penalty)  # (B, T)
        return words, metric.statistics(words, batch.references)

    table = Table.of(split, device_of(model))
    in_turn = in_order(table, batch_size, task.length)
    words, rows = zip(*ranks.spread(in_turn, counted), strict=True)
    statistics = torch.cat(rows).cpu()
    return Evaluation(
        score=float(metric.corpus(statistics)),
        signature=signature(metric, task.length, len(split), beam, length_penalty),
        hypotheses=[task.target_vocab.decode(row) for row in torch.cat(words).tolist()],
        references=[list(meta["references"]) for meta in split.meta],
        statistics=statistics,
    )


def search(model: SequenceModel, source: Tensor, length: int, beam: int, length_penalty: float = 0.0) -> Tensor:
    """The best sentence for each source.  -> (B, T)"""
    if beam == 1:
        return fast.generate(model, source, *free(source, length), greedy)
    return fast.beam_search(model, source, length, beam, length_penalty).words[:, 0]


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


def signature(metric: Metric, length: int, sentences: int, beam: int, length_penalty: float) -> str:
    """How a score was made; two scores compare only where it is equal."""
    search = f"beam:{beam}" + (f"|lp:{length_penalty:g}" if length_penalty and beam > 1 else "")
    return f"{metric.signature}|cut:{length}|{search}|n:{sentences}|seqmixer:{__version__}"


def device_of(model: SequenceModel) -> torch.device:
    return next(model.parameters()).device
