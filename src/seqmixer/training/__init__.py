"""The one loop, and what it leaves behind."""

from seqmixer.training.callbacks import Callback
from seqmixer.training.log import epochs, read_log
from seqmixer.training.loop import Training
from seqmixer.training.progress import Terminal
from seqmixer.training.saving import Position
from seqmixer.training.step import device
from seqmixer.training.trackers import trackers

__all__ = ["Callback", "Position", "Terminal", "Training", "device", "epochs", "read_log", "trackers"]
