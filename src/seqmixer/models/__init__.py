"""Everything that is a `SequenceModel`."""

from seqmixer.models.encoders import AttentiveEncoder, Encoder, ImageEncoder, NoEncoder
from seqmixer.models.huggingface import Decoder, EncoderDecoder
from seqmixer.models.recurrent import Cell, ElmanCell, GRUCell, LSTMCell, Recurrent, initialise, step_by_step
from seqmixer.models.transformer import Blueprint, ImageMemory, Memory, TextMemory, Transformer

__all__ = [
    "AttentiveEncoder",
    "Blueprint",
    "Cell",
    "Decoder",
    "ElmanCell",
    "Encoder",
    "EncoderDecoder",
    "GRUCell",
    "ImageEncoder",
    "ImageMemory",
    "LSTMCell",
    "Memory",
    "NoEncoder",
    "Recurrent",
    "TextMemory",
    "Transformer",
    "initialise",
    "step_by_step",
]
