"""What evaluation and the bootstrap need to know of a score: how to count a sentence, and how to score the counts."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from seqmixer.rewards import bleu, rouge


@dataclass(frozen=True)
class Metric:
    """A score of a corpus. Rows may be summed, resampled or sliced before they are scored.

    >>> import torch
    >>> words = torch.tensor([[5, 6, 7, 8, 2]])
    >>> rows = BLEU.statistics(words, words.unsqueeze(1))
    >>> BLEU.corpus(rows)
    tensor(100.)
    """

    name: str
    statistics: Callable[[Tensor, Tensor], Tensor]  # (B, T) words, (B, R, L) references -> (B, S) counts
    corpus: Callable[[Tensor], Tensor]  # (..., n, S) rows -> (...) in 0..100
    signature: str  # how the score is made, as sacreBLEU says it; two scores compare only where it is equal


BLEU = Metric("bleu", bleu.statistics, bleu.corpus, "bleu|order:4|smooth:none|unk:never-matches|refs:closest")
ROUGE2 = Metric(
    "rouge2",
    partial(rouge.statistics, n=2),
    rouge.corpus,
    "rouge|order:2|recall|mean:sentences|unk:left-out|refs:best",
)
