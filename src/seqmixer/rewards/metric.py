"""A metric: how to count a sentence, how to score the counts of a corpus, and what a sentence is rewarded with."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial

from torch import Tensor

from seqmixer.rewards import bleu, edit, lcs, rouge
from seqmixer.rewards.ngrams import A_WORD
from seqmixer.rewards.starting import combined, replayable
from seqmixer.types import UNK, Reward, Rollout


@dataclass(frozen=True)
class Metric:
    """A score of a corpus, higher is better. Rows may be sliced or resampled before they are scored.

    >>> import torch
    >>> words = torch.tensor([[5, 6, 7, 8, 2]])
    >>> rollout = Rollout(words, words.unsqueeze(1))
    >>> BLEU.corpus(BLEU.statistics(rollout)), BLEU.reward(rollout)
    (tensor(100.), tensor([1.]))
    """

    name: str
    statistics: Callable[[Rollout], Tensor]  # -> (B, S) counts
    corpus: Callable[[Tensor], Tensor]  # (..., n, S) rows -> (...) in 0..highest
    signature: str  # how the score is made, as sacreBLEU says it; two scores compare only where it is equal
    size: int = 1  # S
    highest: float = 100.0  # 1: the score is in units of the reward
    sentence: Reward | None = None  # a training reward of its own; else that of `as_reward`
    alone: Callable[[Tensor], Tensor] | None = None  # (..., S) rows -> (...), where one sentence has too few counts
    label: str = ""  # in reports
    smooths: str | None = None  # the metric that this one is a smoothed version of
    fitted: bool = False  # whether its counts depend on the training data

    @cached_property
    def reward(self) -> Reward:
        """The training reward."""
        return self.sentence or as_reward(self)

    def of_each(self, rows: Tensor) -> Tensor:
        """The score of each sentence, from its counts.  (..., S) -> (...) in 0..highest"""
        return self.alone(rows) if self.alone else self.corpus(rows.unsqueeze(-2))


def counting(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Rollout], Tensor]:
    """Statistics of words (B, T) and references (B, R, L) alone, by tensor operations, which a step may replay."""
    return replayable(lambda rollout: function(rollout.words, rollout.references))


def uncounted(rollout: Rollout) -> Tensor:
    """The statistics of a metric that only scores counts made before: it needs no data and no user's code."""
    raise TypeError("this metric scores counts, it does not make them")


def as_reward(metric: Metric) -> Reward:
    """A training reward in 0..1: the score of a corpus of one sentence, from the counts that are reported.

    The sequence is scored with its forced words, the first `rollout.start`; the rewards of the released code,
    `sentence_bleu` and `rouge2_recall`, skip those. One sentence's BLEU is mostly 0: train on `BLEU_MEAN`.

    >>> import torch
    >>> words = torch.tensor([[5, 6, 7, 2], [5, 2, 0, 0]])
    >>> as_reward(EDIT)(Rollout(words, torch.tensor([[[5, 6, 7, 2]], [[5, 6, 7, 2]]])))
    tensor([1.0000, 0.3333])
    """

    def reward(rollout: Rollout) -> Tensor:
        rows = metric.statistics(rollout)  # (B, S)
        return metric.corpus(rows.unsqueeze(1)) / metric.highest  # (B,) each sentence a corpus (1, S)

    return combined(reward, [metric.statistics])


def mean_of(name: str, reward: Reward) -> Metric:
    """The mean of a reward over the sentences, as a score. The reward may be any function of a rollout.

    >>> import torch
    >>> metric = mean_of("words", lambda rollout: (rollout.words > 2).sum(-1).float())
    >>> metric.corpus(metric.statistics(Rollout(torch.tensor([[5, 6, 2], [5, 2, 0]]), torch.ones(2, 1, 3))))
    tensor(1.5000)
    """
    statistics = combined(lambda rollout: reward(rollout).unsqueeze(-1), [reward])  # (B, 1)
    return Metric(name, statistics, _mean, f"{name}|mean:sentences", highest=1.0, sentence=reward)


def _mean(rows: Tensor) -> Tensor:
    """(..., n, 1) -> (...)"""
    return rows[..., 0].mean(-1)


def unk_as_word(metric: Metric) -> Metric:
    """The same metric with UNK a word like any other, which matches itself, as for scorers that see only text.

    >>> import torch
    >>> words = torch.tensor([[5, 3, 7, 8, 2]])
    >>> rollout = Rollout(words, words.unsqueeze(1))
    >>> [metric.corpus(metric.statistics(rollout)).item() for metric in (EXACT, unk_as_word(EXACT))]
    [0.0, 100.0]
    """

    def statistics(rollout: Rollout) -> Tensor:
        words, references = (each.masked_fill(each == UNK, A_WORD) for each in (rollout.words, rollout.references))
        return metric.statistics(replace(rollout, words=words, references=references))

    parts = ["unk:a-word" if part.startswith("unk:") else part for part in metric.signature.split("|")]
    return replace(metric, statistics=combined(statistics, [metric.statistics]), signature="|".join(parts))


def _rouge(name: str, label: str, n: int, score: rouge.Score, says: str, released: Reward | None = None) -> Metric:
    return Metric(
        name,
        counting(partial(rouge.statistics, n=n, score=score)),
        partial(rouge.corpus, score=score),
        f"rouge|order:{n}|{says}|mean:sentences|unk:left-out|refs:best",
        size=3,
        sentence=released,
        label=label,
    )


BLEU = Metric(
    "bleu",
    counting(bleu.statistics),
    bleu.corpus,
    "bleu|order:4|smooth:none|unk:never-matches|refs:closest",
    size=10,
    sentence=bleu.sentence_bleu,
    alone=bleu.of_sentences,
    label="BLEU",
)
BLEU_MEAN = Metric(
    "bleu_mean",
    counting(bleu.statistics),
    bleu.mean_of_sentences,
    "bleu|order:4-effective|smooth:exp|mean:sentences|unk:never-matches|refs:closest",
    size=10,
    label="BLEU, mean of sentences",
    smooths=BLEU.name,
)
BLEU_BEST = Metric(
    "bleu_best",
    counting(bleu.best_row),
    bleu.mean_of_best,
    "bleu|order:4-effective|smooth:add-1|mean:sentences|unk:never-matches|refs:best",
    sentence=bleu.best_sentence_bleu,
    label="BLEU, best of the references",
)
ROUGE1 = _rouge("rouge1", "ROUGE-1", 1, rouge.recall, "recall")
ROUGE2 = _rouge("rouge2", "ROUGE-2", 2, rouge.recall, "recall", released=rouge.rouge2_recall)
ROUGE1_F = _rouge("rouge1_f", "ROUGE-1 F1", 1, rouge.f1, "f1")
ROUGE2_F = _rouge("rouge2_f", "ROUGE-2 F1", 2, rouge.f1, "f1")
ROUGE_L = Metric(
    "rouge_l",
    counting(partial(lcs.statistics, score=rouge.f1)),
    partial(rouge.corpus, score=rouge.f1),
    "rouge|lcs|f1|mean:sentences|unk:left-out|refs:best",
    size=3,
    label="ROUGE-L F1",
)
EDIT = Metric(
    "edit",
    counting(edit.statistics),
    edit.corpus,
    "edit|similarity|mean:sentences|unk:never-matches|refs:best",
    size=3,
    label="edit similarity",
)
EXACT = Metric(
    "exact",
    counting(edit.exact),
    edit.exact_corpus,
    "exact|mean:sentences|unk:never-matches|refs:any",
    label="exact matches",
)
LENGTH = Metric(
    "length",
    counting(edit.lengths),
    edit.length_corpus,
    "length|shorter/longer|mean:sentences|refs:best",
    size=2,
    label="length similarity",
)
DEFAULT = BLEU  # where no metric is named

METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (BLEU, BLEU_MEAN, BLEU_BEST, ROUGE1, ROUGE2, ROUGE1_F, ROUGE2_F, ROUGE_L, EDIT, EXACT, LENGTH)
}
