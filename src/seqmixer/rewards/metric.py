"""What evaluation and the bootstrap need to know of a score: how to count a sentence, and how to score the counts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from torch import Tensor

from seqmixer.rewards import bleu, edit, lcs, rouge
from seqmixer.rewards.ngrams import A_WORD
from seqmixer.rewards.starting import replayable
from seqmixer.types import UNK, Reward, Rollout


@dataclass(frozen=True)
class Metric:
    """A score of a corpus, higher is better. Rows may be sliced or resampled before they are scored.

    >>> import torch
    >>> words = torch.tensor([[5, 6, 7, 8, 2]])
    >>> rows = BLEU.statistics(words, words.unsqueeze(1))
    >>> BLEU.corpus(rows)
    tensor(100.)
    """

    name: str
    statistics: Callable[[Tensor, Tensor], Tensor]  # (B, T) words, (B, R, L) references -> (B, S) counts
    corpus: Callable[[Tensor], Tensor]  # (..., n, S) rows -> (...) in 0..highest
    signature: str  # how the score is made, as sacreBLEU says it; two scores compare only where it is equal
    highest: float = 100.0


def as_reward(metric: Metric) -> Reward:
    """A training reward in 0..1: the score of a corpus of one sentence, from the counts that are reported.

    The whole sequence is scored, the words given to it (`rollout.start`) included; the rewards of the released code,
    `sentence_bleu` and `rouge2_recall`, leave those out. One sentence's BLEU is mostly 0: train on `BLEU_MEAN`.

    >>> import torch
    >>> words = torch.tensor([[5, 6, 7, 2], [5, 2, 0, 0]])
    >>> as_reward(EDIT)(Rollout(words, torch.tensor([[[5, 6, 7, 2]], [[5, 6, 7, 2]]])))
    tensor([1.0000, 0.3333])
    """

    def reward(rollout: Rollout) -> Tensor:
        rows = metric.statistics(rollout.words, rollout.references)  # (B, S)
        return metric.corpus(rows.unsqueeze(1)) / metric.highest  # (B,) each sentence a corpus (1, S)

    return replayable(reward)


def unk_as_word(metric: Metric) -> Metric:
    """The same metric with UNK a word like any other, which matches itself, as for scorers that see only text.

    >>> import torch
    >>> words = torch.tensor([[5, 3, 7, 8, 2]])
    >>> [m.corpus(m.statistics(words, words.unsqueeze(1))).item() for m in (EXACT, unk_as_word(EXACT))]
    [0.0, 100.0]
    """

    def statistics(words: Tensor, references: Tensor) -> Tensor:
        return metric.statistics(
            words.masked_fill(words == UNK, A_WORD), references.masked_fill(references == UNK, A_WORD)
        )

    parts = ["unk:a-word" if part.startswith("unk:") else part for part in metric.signature.split("|")]
    return replace(metric, statistics=statistics, signature="|".join(parts))


def _rouge_n(name: str, n: int, score: rouge.Score, says: str) -> Metric:
    signature = f"rouge|order:{n}|{says}|mean:sentences|unk:left-out|refs:best"
    return Metric(name, partial(rouge.statistics, n=n, score=score), partial(rouge.corpus, score=score), signature)


BLEU = Metric("bleu", bleu.statistics, bleu.corpus, "bleu|order:4|smooth:none|unk:never-matches|refs:closest")
BLEU_MEAN = Metric(
    "bleu_mean",
    bleu.statistics,
    bleu.mean_of_sentences,
    "bleu|order:4-effective|smooth:exp|mean:sentences|unk:never-matches|refs:closest",
)
BLEU_BEST = Metric(
    "bleu_best",
    bleu.best_row,
    bleu.mean_of_best,
    "bleu|order:4-effective|smooth:add-1|mean:sentences|unk:never-matches|refs:best",
)
ROUGE1 = _rouge_n("rouge1", 1, rouge.recall, "recall")
ROUGE2 = _rouge_n("rouge2", 2, rouge.recall, "recall")
ROUGE1_F = _rouge_n("rouge1_f", 1, rouge.f1, "f1")
ROUGE2_F = _rouge_n("rouge2_f", 2, rouge.f1, "f1")
ROUGE_L = Metric(
    "rouge_l",
    partial(lcs.statistics, score=rouge.f1),
    partial(rouge.corpus, score=rouge.f1),
    "rouge|lcs|f1|mean:sentences|unk:left-out|refs:best",
)
EDIT = Metric("edit", edit.statistics, edit.corpus, "edit|similarity|mean:sentences|unk:never-matches|refs:best")
EXACT = Metric("exact", edit.exact, edit.exact_corpus, "exact|mean:sentences|unk:never-matches|refs:any")
LENGTH = Metric("length", edit.lengths, edit.length_corpus, "length|shorter/longer|mean:sentences|refs:best")

METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (BLEU, BLEU_MEAN, BLEU_BEST, ROUGE1, ROUGE2, ROUGE1_F, ROUGE2_F, ROUGE_L, EDIT, EXACT, LENGTH)
}
