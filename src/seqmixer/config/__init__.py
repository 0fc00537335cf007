"""What a run is: its settings, as a TOML file has them."""

from seqmixer.config.config import Config, documentation
from seqmixer.config.sections import (
    TOYS,
    AlgorithmConfig,
    DataConfig,
    EvaluationConfig,
    ModelConfig,
    RewardConfig,
    Section,
    TrainingConfig,
)

__all__ = [
    "TOYS",
    "AlgorithmConfig",
    "Config",
    "DataConfig",
    "EvaluationConfig",
    "ModelConfig",
    "RewardConfig",
    "Section",
    "TrainingConfig",
    "documentation",
]
