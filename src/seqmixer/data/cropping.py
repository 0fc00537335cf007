"""How long the targets may get: the share of references that T steps hold, and the T that holds a given share.

The paper crops its targets (Sec. 4); a reference fits if its words and EOS fit, else it loses its tail and its EOS.
"""

import numpy as np

from seqmixer.data.task import Split

LONGEST = 10_000  # the most that T may be


def coverage(split: Split, length: int) -> float:
    """The share of references whose words and EOS fit in `length` steps."""
    return float(np.mean(_lengths(split) <= length))


def length_covering(split: Split, share: float = 0.95) -> int:
    """The smallest T that covers at least `share` of the references, or the longest that may be."""
    lengths = np.sort(_lengths(split))
    covered = np.arange(1, len(lengths) + 1) / len(lengths)  # covered[i]: the share that lengths[i] covers, or more
    return min(int(lengths[np.searchsorted(covered, share)]), LONGEST)


def _lengths(split: Split) -> np.ndarray:
    return np.array([len(reference) for references in split.references for reference in references])
