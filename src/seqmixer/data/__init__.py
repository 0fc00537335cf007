"""Data: files or built-in tasks in, batches out."""

from seqmixer.data.batching import batch_count, batches, in_order
from seqmixer.data.captions import Captioned, captions_task, read_captions, read_features
from seqmixer.data.columns import kind_of, names_of_columns, read_columns, read_table
from seqmixer.data.cropping import LONGEST, coverage, length_covering
from seqmixer.data.files import collector_paused
from seqmixer.data.pieces import Pieces, read_tokenizer, token_ids, tokenizer_vocabs
from seqmixer.data.raw import Preprocessing, ReadableVocab, learn_vocab, load_vocab
from seqmixer.data.table import Table
from seqmixer.data.task import Split, Task
from seqmixer.data.text import (
    Pairs,
    Vocabs,
    build_vocabs,
    encode_split,
    hold_out,
    read_lines,
    read_pairs,
    recoded,
    text_task,
)
from seqmixer.data.vocab import Vocab, VocabLimits, Vocabulary

__all__ = [
    "LONGEST",
    "Captioned",
    "Pairs",
    "Pieces",
    "Preprocessing",
    "ReadableVocab",
    "Split",
    "Table",
    "Task",
    "Vocab",
    "VocabLimits",
    "Vocabs",
    "Vocabulary",
    "batch_count",
    "batches",
    "build_vocabs",
    "captions_task",
    "collector_paused",
    "coverage",
    "encode_split",
    "hold_out",
    "in_order",
    "kind_of",
    "learn_vocab",
    "length_covering",
    "load_vocab",
    "names_of_columns",
    "read_captions",
    "read_columns",
    "read_features",
    "read_lines",
    "read_pairs",
    "read_table",
    "read_tokenizer",
    "recoded",
    "text_task",
    "token_ids",
    "tokenizer_vocabs",
]
