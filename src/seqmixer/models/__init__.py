"""Everything that is a `SequenceModel`."""

from seqmixer.models.encoders import AttentiveEncoder, Encoder, ImageEncoder, NoEncoder
from seqmixer.models.recurrent import Cell, ElmanCell, GRUCell, LSTMCell, Recurrent, initialise, step_by_step

__all__ = [
    "AttentiveEncoder",
    "Cell",
    "ElmanCell",
    "Encoder",
    "GRUCell",
    "ImageEncoder",
    "LSTMCell",
    "NoEncoder",
    "Recurrent",
    "initialise",
    "step_by_step",
]
