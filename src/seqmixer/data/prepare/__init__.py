"""Preparing corpora from their official files: what `seqmixer data prepare` and `seqmixer data features` do."""

from seqmixer.data.prepare.coco import coco
from seqmixer.data.prepare.corpus import CaptionCorpus, Limits, TextCorpus, clean, tokenised
from seqmixer.data.prepare.images import write_image_features
from seqmixer.data.prepare.text import gigaword, iwslt14, multi30k, pairs
from seqmixer.data.prepare.writing import require_new, write_captions, write_text

__all__ = [
    "CaptionCorpus",
    "Limits",
    "TextCorpus",
    "clean",
    "coco",
    "gigaword",
    "iwslt14",
    "multi30k",
    "pairs",
    "require_new",
    "tokenised",
    "write_captions",
    "write_image_features",
    "write_text",
]
