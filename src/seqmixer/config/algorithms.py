"""[algorithm]: the settings of the algorithm that is named, one of seqmixer's or a class of the user's own."""

from typing import Annotated

from pydantic import ConfigDict

from seqmixer.algorithms import ALGORITHMS, AlgorithmSettings
from seqmixer.settings import OneOf

OWN = "module:Class"


class OwnAlgorithmSettings(AlgorithmSettings):
    """[algorithm] with name = "module:Class". Its class checks the settings it adds, once it is imported."""

    model_config = ConfigDict(extra="allow")


AlgorithmConfig = Annotated[
    AlgorithmSettings,
    OneOf({**{name: each.Settings for name, each in ALGORITHMS.items()}, OWN: OwnAlgorithmSettings}, "mixer", OWN),
]
