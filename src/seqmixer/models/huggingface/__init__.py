"""Models of the transformers library behind the contract of seqmixer. They need the extra: pip install seqmixer[hf]."""

from seqmixer.models.huggingface.adapter import Adapter
from seqmixer.models.huggingface.decoder import Decoder
from seqmixer.models.huggingface.encoder_decoder import EncoderDecoder
from seqmixer.models.huggingface.loading import Pretrained, is_encoder_decoder, load, positions, save

__all__ = [
    "Adapter",
    "Decoder",
    "EncoderDecoder",
    "Pretrained",
    "is_encoder_decoder",
    "load",
    "positions",
    "save",
]
