"""The one loop, and what it leaves behind."""

from seqmixer.training.log import epochs, read_log
from seqmixer.training.loop import Training
from seqmixer.training.position import Position
from seqmixer.training.progress import Progress, Silent, Terminal
from seqmixer.training.step import device

__all__ = ["Position", "Progress", "Silent", "Terminal", "Training", "device", "epochs", "read_log"]
