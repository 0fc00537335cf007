"""Pay for how a sentence ends.

BLEU and ROUGE do not see EOS. A model that is paid by them alone may learn to stop anywhere, also after "with a": what
it leaves out costs less than what it might get wrong.
"""

from dataclasses import replace

from torch import Tensor

from seqmixer.rewards.ngrams import END
from seqmixer.rewards.starting import combined
from seqmixer.types import EOS, Reward, Rollout


def with_end(reward: Reward) -> Reward:
    """The same reward with EOS a word like any other, in what is written and in the references. One that counts words.

    >>> import torch
    >>> from seqmixer.rewards import METRICS, as_reward
    >>> words, reference = torch.tensor([[5, 2, 0], [5, 6, 2]]), torch.tensor([[5, 6, 7, 8, 2]])
    >>> with_end(as_reward(METRICS["rouge1"]))(Rollout(words, torch.stack([reference, reference])))
    tensor([0.4000, 0.6000])
    """

    def paid(rollout: Rollout) -> Tensor:
        words, references = (each.masked_fill(each == EOS, END) for each in (rollout.words, rollout.references))
        return reward(replace(rollout, words=words, references=references))

    return combined(paid, [reward])
