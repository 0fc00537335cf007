"""Model and source to words."""

from seqmixer.decoding.beam import Hypotheses, beam_search
from seqmixer.decoding.generate import deployed, free, generate, greedy, sample, sampler, score, shift

__all__ = ["Hypotheses", "beam_search", "deployed", "free", "generate", "greedy", "sample", "sampler", "score", "shift"]
