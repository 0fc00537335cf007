"""Reward how a sentence ends.

No metric sees EOS. A model that is rewarded by one alone may learn to stop anywhere, also after "with a": what it drops
costs less than what it might get wrong.
"""

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from seqmixer.rewards.cider import AN_END, Document
from seqmixer.rewards.metric import Metric
from seqmixer.rewards.ngrams import END
from seqmixer.rewards.starting import combined
from seqmixer.types import EOS, Rollout


def with_end(metric: Metric) -> Metric:
    """The same metric, rewarding with EOS a word like any other, on both sides; of chrF, a character.

    CIDEr-D weighs this word, too: its document frequencies must be those of `with_ends`.

    >>> import torch
    >>> from seqmixer.rewards import METRICS
    >>> words, reference = torch.tensor([[5, 2, 0], [5, 6, 2]]), torch.tensor([[5, 6, 7, 8, 2]])
    >>> with_end(METRICS["rouge1"]).reward(Rollout(words, torch.stack([reference, reference])))
    tensor([0.4000, 0.6000])
    """

    def ended(rollout: Rollout) -> Tensor:
        words, references = (each.masked_fill(each == EOS, END) for each in (rollout.words, rollout.references))
        return metric.reward(replace(rollout, words=words, references=references))

    return replace(metric, sentence=combined(ended, [metric.reward]))


def with_ends(documents: Sequence[Document]) -> list[Document]:
    """References whose last word is their end, to count document frequencies of.

    >>> with_ends([[[5, 6, 2]]])
    [[[5, 6, 1, 2]]]
    """
    return [[[*words[:-1], AN_END, EOS] for words in several] for several in documents]
