"""A user's own Python function: found by its path, called as its parameters ask, in this process or in others.

Needs no torch, so that a worker process starts in an instant.
"""

from seqmixer.functions.elsewhere import Elsewhere
from seqmixer.functions.kinds import Row, Scorer, read, scores
from seqmixer.functions.paths import from_path, is_path, undisturbed
from seqmixer.functions.pool import Pool

__all__ = ["Elsewhere", "Pool", "Row", "Scorer", "from_path", "is_path", "read", "scores", "undisturbed"]
