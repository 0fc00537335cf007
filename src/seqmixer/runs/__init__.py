"""From a config to a trained run, and from a run folder to its model."""

from seqmixer.runs.folder import read_dimensions
from seqmixer.runs.opening import Run, load, named_split
from seqmixer.runs.run import located, start_from, task_of, train, try_out

__all__ = ["Run", "load", "located", "named_split", "read_dimensions", "start_from", "task_of", "train", "try_out"]
