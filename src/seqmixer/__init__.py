"""Train text generators on the score they are judged by: XENT, DAD, E2E, REINFORCE and MIXER.

Names are imported when they are first used, so that `seqmixer --help` need not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"  # part of the signature of every score

if TYPE_CHECKING:
    from seqmixer import data, decoding, models, rewards
    from seqmixer.algorithms import E2E, Dad, LeaveOneOut, LinearBaseline, Mixer, Reinforce, Xent
    from seqmixer.config import Config, TrainingConfig
    from seqmixer.decoding import Search
    from seqmixer.evaluation import evaluate, perplexity
    from seqmixer.rewards.strings import reward_function
    from seqmixer.runs import Run, load, train
    from seqmixer.runs.inference import write
    from seqmixer.schedules import forced_words
    from seqmixer.training import Training
    from seqmixer.types import Batch, Loss, Reward, Rollout, SequenceModel

HOMES = {
    "algorithms": ("E2E", "Dad", "LeaveOneOut", "LinearBaseline", "Mixer", "Reinforce", "Xent"),
    "config": ("Config", "TrainingConfig"),
    "decoding": ("Search",),
    "evaluation": ("evaluate", "perplexity"),
    "rewards.strings": ("reward_function",),
    "runs.inference": ("write",),
    "runs": ("Run", "load", "train"),
    "schedules": ("forced_words",),
    "training": ("Training",),
    "types": ("Batch", "Loss", "Reward", "Rollout", "SequenceModel"),
}
MODULES = ("data", "decoding", "models", "rewards")

__all__ = [
    "E2E",
    "Batch",
    "Config",
    "Dad",
    "LeaveOneOut",
    "LinearBaseline",
    "Loss",
    "Mixer",
    "Reinforce",
    "Reward",
    "Rollout",
    "Run",
    "Search",
    "SequenceModel",
    "Training",
    "TrainingConfig",
    "Xent",
    "__version__",
    "data",
    "decoding",
    "evaluate",
    "forced_words",
    "load",
    "models",
    "perplexity",
    "reward_function",
    "rewards",
    "train",
    "write",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name in MODULES:
        return import_module(f"seqmixer.{name}")
    for home, names in HOMES.items():
        if name in names:
            return vars(import_module(f"seqmixer.{home}"))[name]
    raise AttributeError(f"module 'seqmixer' has no attribute {name!r}")
