"""BRIO (Liu et al. 2022): the order of the candidates' scores is to be that of their rewards."""

from typing import Literal

from pydantic import Field

from seqmixer.algorithms.groups import GroupLoss, GroupSettings
from seqmixer.losses import ranking


class BrioSettings(GroupSettings):
    """[algorithm] with name = "brio"."""

    name: Literal["brio"] = "brio"
    length_penalty: float = Field(1.0, ge=0)
    """As in the paper, which has other values for other data: a sentence's score is log p / length^length_penalty."""
    rank_margin: float = Field(0.3, ge=0)
    """BRIO: by how much scores should differ, for each rank between two candidates."""


class Brio(GroupLoss):
    """Of each two candidates the better one is to score higher, by a margin that grows with the ranks between them."""

    Settings = BrioSettings
    label = "BRIO"
    compare = staticmethod(ranking)
