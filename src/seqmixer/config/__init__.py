"""What a run is: its settings, as a TOML file has them."""

from seqmixer.config.algorithms import OwnAlgorithmSettings
from seqmixer.config.config import Config, documentation
from seqmixer.config.models import (
    HuggingFaceSettings,
    ModelSettings,
    OwnModelSettings,
    RecurrentSettings,
    TransformerSettings,
)
from seqmixer.config.sections import TOYS, DataConfig, EvaluationConfig, RewardConfig, TextConfig, TrainingConfig

__all__ = [
    "TOYS",
    "Config",
    "DataConfig",
    "EvaluationConfig",
    "HuggingFaceSettings",
    "ModelSettings",
    "OwnAlgorithmSettings",
    "OwnModelSettings",
    "RecurrentSettings",
    "RewardConfig",
    "TextConfig",
    "TrainingConfig",
    "TransformerSettings",
    "documentation",
]
