"""Sentences for the tests of rewards: as rows of a tensor, and counted in plain Python."""

from collections import Counter

import torch

from seqmixer.types import EOS, PAD


def row(sentence, width):
    """Ended, cropped and padded."""
    return ([*sentence, EOS] + [PAD] * width)[:width]


def tensors(hypotheses, references, width):
    """-> (B, T), (B, R, T); references that are not there are all PAD"""
    most = max(map(len, references))
    rows = [[row(r, width) for r in several] + [[PAD] * width] * (most - len(several)) for several in references]
    return torch.tensor([row(h, width) for h in hypotheses]), torch.tensor(rows)


def grams(sentence, n, s):
    """The n-grams that touch what comes after the first s words, and how often."""
    counts = Counter()
    for i in range(len(sentence) - n + 1):
        if any(position >= s for position in range(i, i + n)):
            counts[tuple(sentence[i : i + n])] += 1
    return counts
