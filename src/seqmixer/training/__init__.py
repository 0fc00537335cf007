"""The one loop, and what it leaves behind."""

from seqmixer.training.log import epochs, read_log
from seqmixer.training.loop import Training, device
from seqmixer.training.position import Position
from seqmixer.training.progress import Progress, Silent, Terminal

__all__ = ["Position", "Progress", "Silent", "Terminal", "Training", "device", "epochs", "read_log"]
