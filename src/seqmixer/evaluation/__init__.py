"""How good a model's sentences are: a split decoded and scored, or files of text in two protocols."""

from seqmixer.evaluation.corpus import (
    SCORES,
    Evaluation,
    Scored,
    Scores,
    TestScore,
    device_of,
    evaluate,
    perplexity,
    read_scores,
    signature,
)
from seqmixer.evaluation.effects import described, effects
from seqmixer.evaluation.sentences import SENTENCES, read_sentences, write_sentences

__all__ = [
    "SCORES",
    "SENTENCES",
    "Evaluation",
    "Scored",
    "Scores",
    "TestScore",
    "described",
    "device_of",
    "effects",
    "evaluate",
    "perplexity",
    "read_scores",
    "read_sentences",
    "signature",
    "write_sentences",
]
