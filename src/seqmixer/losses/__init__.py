"""What is minimised, as pure functions, one for each equation. Each returns a sum; the algorithm divides once."""

from seqmixer.losses.groups import expected_risk
from seqmixer.losses.policy import baseline_error, policy_gradient
from seqmixer.losses.words import cross_entropy, entropy, log_prob

__all__ = ["baseline_error", "cross_entropy", "entropy", "expected_risk", "log_prob", "policy_gradient"]
