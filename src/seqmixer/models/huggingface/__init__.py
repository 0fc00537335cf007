"""Models of the transformers library behind the contract of seqmixer. They need the extra: pip install seqmixer[hf]."""

from seqmixer.models.huggingface.adapter import Adapter, positions_of, tied_names, untie
from seqmixer.models.huggingface.decoder import Decoder
from seqmixer.models.huggingface.encoder_decoder import EncoderDecoder
from seqmixer.models.huggingface.loading import Pretrained, load, read_config, save, save_config

__all__ = [
    "Adapter",
    "Decoder",
    "EncoderDecoder",
    "Pretrained",
    "load",
    "positions_of",
    "read_config",
    "save",
    "save_config",
    "tied_names",
    "untie",
]
