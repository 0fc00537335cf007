"""Disjoint samples of a corpus, the same for the same seed."""

from collections.abc import Mapping

import numpy as np

from seqmixer.errors import DataError


def draw(total: int, sizes: Mapping[str, int], seed: int, what: str) -> dict[str, list[int]]:
    """For each name, so many of the numbers 0..total-1, drawn without replacement, then in order.

    >>> draw(10, {"valid": 2, "test": 3}, seed=1, what="pairs")
    {'valid': [4, 8], 'test': [0, 1, 7]}
    """
    wanted = sum(sizes.values())
    if wanted > total:
        parts = " and ".join(f"{size} for {name}" for name, size in sizes.items())
        raise DataError(f"{total} {what} are there, but {parts} were asked for; ask for fewer")
    order = np.random.default_rng(seed).permutation(total)
    samples, begin = {}, 0
    for name, size in sizes.items():
        samples[name] = sorted(order[begin : begin + size].tolist())
        begin += size
    return samples
