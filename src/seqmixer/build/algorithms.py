"""[algorithm] to an algorithm."""

from dataclasses import replace

from pydantic import ValidationError

from seqmixer.algorithms import ALGORITHMS, Algorithm, AlgorithmSettings, Parts
from seqmixer.config import Config, OwnAlgorithmSettings
from seqmixer.decoding import fast
from seqmixer.errors import ConfigError
from seqmixer.functions import from_path
from seqmixer.settings import explained


def build_algorithm(settings: AlgorithmSettings, parts: Parts) -> Algorithm:
    """The algorithm of a config, sampling by captured programs. Its class is imported if it is the user's own."""
    kind = ALGORITHMS.get(settings.name) or own_algorithm(settings.name)
    if isinstance(settings, OwnAlgorithmSettings):
        fixed = not kind.Settings.model_fields["name"].is_required()  # the settings of a class that it is derived from
        try:
            settings = kind.Settings.model_validate(settings.model_dump(exclude={"name"} if fixed else None))
        except ValidationError as error:
            raise ConfigError(f"config: {explained(error, kind.Settings, 'algorithm')}") from None
    return kind.of(settings, replace(parts, generate=fast.generate))


def own_algorithm(path: str) -> type[Algorithm]:
    """The class that a path names."""
    found = from_path(path)
    if not (isinstance(found, type) and issubclass(found, Algorithm)):
        raise ConfigError(f"algorithm.name = {path!r} is no subclass of seqmixer.algorithms.Algorithm; name one")
    return found


def run_length(config: Config, length: int) -> int:
    """How many epochs a run has: those of its schedule, or as many as it is told."""
    return config.training.epochs or len(config.algorithm.schedule(length))
