"""The built-in tasks: one for each of the paper's, generated from a seed, small enough for two CPU cores.

Each source has many right answers and the references are sampled from them, so that the best output is known
(`best_outputs`), and differs from what greedy search on a perfect model of words gives (tests/data/test_toy.py).
"""

from seqmixer.data.toy.captioning import captioning, render
from seqmixer.data.toy.summarization import summarization
from seqmixer.data.toy.translation import translation
from seqmixer.data.toy.variants import best_outputs

__all__ = ["best_outputs", "captioning", "render", "summarization", "translation"]
