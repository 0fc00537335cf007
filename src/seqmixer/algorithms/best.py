"""Fine-tuning on the best of n samples (as RAFT, Dong et al. 2023): XENT on the best candidate of each source."""

from typing import Literal

from seqmixer.algorithms.groups import GroupLoss, GroupSettings
from seqmixer.losses import best_of_n


class BestOfNSettings(GroupSettings):
    """[algorithm] with name = "best-of-n"."""

    name: Literal["best-of-n"] = "best-of-n"


class BestOfN(GroupLoss):
    """The best candidate becomes more likely, where one is better than others."""

    Settings = BestOfNSettings
    label = "best of n"
    compare = staticmethod(best_of_n)
