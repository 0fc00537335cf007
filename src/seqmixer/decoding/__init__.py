"""Model and source to words."""

from seqmixer.decoding import fast
from seqmixer.decoding.beam import Hypotheses, beam_search
from seqmixer.decoding.generate import deployed, ended, free, generate, greedy, read, sample, sampler, score, shift

__all__ = [
    "Hypotheses",
    "beam_search",
    "deployed",
    "ended",
    "fast",
    "free",
    "generate",
    "greedy",
    "read",
    "sample",
    "sampler",
    "score",
    "shift",
]
