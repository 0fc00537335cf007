"""The structured losses of Edunov et al. (2018) beside the risk: the best candidate by reward against the rest."""

from typing import Literal

from pydantic import Field

from seqmixer.algorithms.groups import GroupLoss, GroupSettings
from seqmixer.losses import max_margin, sequence_nll, softmax_margin


class SequenceNllSettings(GroupSettings):
    """[algorithm] with name = "seq-nll"."""

    name: Literal["seq-nll"] = "seq-nll"
    length_penalty: float = Field(1.0, ge=0)
    """As in the paper: a sentence's score is the mean log p of its words."""


class MarginSettings(SequenceNllSettings):
    """[algorithm] with name = "max-margin"."""

    name: Literal["max-margin"] = "max-margin"  # type: ignore[assignment]
    margin: float = Field(3.0, ge=0)
    """Margins: by how much the best candidate should score higher, for each unit of reward that it is better by."""


class SoftmaxMarginSettings(MarginSettings):
    """[algorithm] with name = "softmax-margin"."""

    name: Literal["softmax-margin"] = "softmax-margin"  # type: ignore[assignment]


class SequenceNll(GroupLoss):
    """The best candidate becomes more likely among the candidates."""

    Settings = SequenceNllSettings
    label = "sequence NLL"
    compare = staticmethod(sequence_nll)


class MaxMargin(GroupLoss):
    """The best candidate is to score higher than each other by its margin; the one that misses it most teaches."""

    Settings = MarginSettings
    label = "max-margin"
    compare = staticmethod(max_margin)


class SoftmaxMargin(GroupLoss):
    """Sequence NLL in which a candidate scores the higher, the worse it is: all of them teach at once."""

    Settings = SoftmaxMarginSettings
    label = "softmax-margin"
    compare = staticmethod(softmax_margin)
