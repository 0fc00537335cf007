"""Model and source to words."""

from seqmixer.decoding import fast
from seqmixer.decoding.beam import Hypotheses, beam_search
from seqmixer.decoding.generate import deployed, ended, free, generate, greedy, read, sample, sampler, score, shift
from seqmixer.decoding.search import GREEDY, Search, without_unk

__all__ = [
    "GREEDY",
    "Hypotheses",
    "Search",
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
    "without_unk",
]
