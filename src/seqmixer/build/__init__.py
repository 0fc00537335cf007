"""Config to objects: the only part that knows concrete names, and so the table of contents of seqmixer."""

from seqmixer.build.algorithms import build_algorithm, run_length
from seqmixer.build.models import Dimensions, Model, build_model
from seqmixer.build.rewards import build_metric, build_reward, named_metric
from seqmixer.build.tasks import build_task, elsewhere, first, missing_files

__all__ = [
    "Dimensions",
    "Model",
    "build_algorithm",
    "build_metric",
    "build_model",
    "build_reward",
    "build_task",
    "elsewhere",
    "first",
    "missing_files",
    "named_metric",
    "run_length",
]
