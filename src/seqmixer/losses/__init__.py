"""What is minimised, as pure functions, one for each equation. Each returns a sum; the algorithm divides once."""

from seqmixer.losses.demonstrations import gold_weight
from seqmixer.losses.groups import (
    best_of_n,
    contrastive_preference,
    expected_risk,
    max_margin,
    preference,
    ranking,
    sequence_nll,
    softmax_margin,
)
from seqmixer.losses.policy import baseline_error, clipped_ratio, differences, policy_gradient, sentence_ratio
from seqmixer.losses.words import (
    cross_entropy,
    entropy,
    log_prob,
    log_probs,
    smoothing_loss,
    unlikelihood_loss,
    words_of,
)

__all__ = [
    "baseline_error",
    "best_of_n",
    "clipped_ratio",
    "contrastive_preference",
    "cross_entropy",
    "differences",
    "entropy",
    "expected_risk",
    "gold_weight",
    "log_prob",
    "log_probs",
    "max_margin",
    "policy_gradient",
    "preference",
    "ranking",
    "sentence_ratio",
    "sequence_nll",
    "smoothing_loss",
    "softmax_margin",
    "unlikelihood_loss",
    "words_of",
]
