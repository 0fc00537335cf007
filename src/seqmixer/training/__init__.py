"""The training loop, its callbacks, checkpoints and log."""

from seqmixer.training.callbacks import Callback
from seqmixer.training.clock import machine
from seqmixer.training.log import epochs, read_log
from seqmixer.training.loop import Training
from seqmixer.training.progress import Notebook, Place, Terminal, on_screen, read_place
from seqmixer.training.saving import Position
from seqmixer.training.step import device
from seqmixer.training.trackers import trackers

__all__ = [
    "Callback",
    "Notebook",
    "Place",
    "Position",
    "Terminal",
    "Training",
    "device",
    "epochs",
    "machine",
    "on_screen",
    "read_log",
    "read_place",
    "trackers",
]
