"""Config to objects: the only part that knows concrete names, and so the table of contents of seqmixer."""

from seqmixer.build.algorithms import build_algorithm, run_length
from seqmixer.build.models import Dimensions, Model, build_model
from seqmixer.build.rewards import Metrics
from seqmixer.build.tasks import build_task, elsewhere, first, missing_files, preprocessing, read_split

__all__ = [
    "Dimensions",
    "Metrics",
    "Model",
    "build_algorithm",
    "build_model",
    "build_task",
    "elsewhere",
    "first",
    "missing_files",
    "preprocessing",
    "read_split",
    "run_length",
]
