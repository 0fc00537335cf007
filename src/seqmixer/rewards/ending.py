"""Reward how a sentence ends.

BLEU and ROUGE do not see EOS. A model that is rewarded by them alone may learn to stop anywhere, also after "with a":
what it drops costs less than what it might get wrong.
"""

from dataclasses import replace

from torch import Tensor

from seqmixer.rewards.metric import Metric
from seqmixer.rewards.ngrams import END
from seqmixer.rewards.starting import combined
from seqmixer.types import EOS, Rollout


def with_end(metric: Metric) -> Metric:
    """The same metric, rewarding with EOS a word like any other, on both sides. For metrics that count words.

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
