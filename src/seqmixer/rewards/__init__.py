"""What a sequence is rewarded with, and how a corpus is scored, from the same counts (Sec. 4)."""

from seqmixer.functions import from_path
from seqmixer.rewards.agreement import consensus
from seqmixer.rewards.bleu import best_sentence_bleu, sentence_bleu
from seqmixer.rewards.characters import CharacterTable
from seqmixer.rewards.chrf import chrf_metric
from seqmixer.rewards.cider import DocumentFrequencies, cider_metric
from seqmixer.rewards.control import CONTROLS, Control
from seqmixer.rewards.ending import with_end, with_ends
from seqmixer.rewards.metric import (
    BLEU,
    BLEU_BEST,
    BLEU_MEAN,
    DEFAULT,
    EDIT,
    EXACT,
    LENGTH,
    METRICS,
    ROUGE1,
    ROUGE1_F,
    ROUGE2,
    ROUGE2_F,
    ROUGE_L,
    Metric,
    as_reward,
    mean_of,
    unk_as_word,
)
from seqmixer.rewards.prefixes import of_prefixes
from seqmixer.rewards.readable import READABLE, readable_metric
from seqmixer.rewards.rouge import rouge2_recall
from seqmixer.rewards.starting import Pending, Startable, begin, combined, is_replayable, replayable
from seqmixer.rewards.subwords import Merges, Style, detect, metric_on_whole_words, on_whole_words
from seqmixer.rewards.text import on_text, on_words, values_of
from seqmixer.rewards.weighted import (
    BUILT_IN,
    of_counts,
    parse,
    sum_signature,
    summed_metric,
    weighted,
    weighted_metric,
)

__all__ = [
    "BLEU",
    "BLEU_BEST",
    "BLEU_MEAN",
    "BUILT_IN",
    "CONTROLS",
    "DEFAULT",
    "EDIT",
    "EXACT",
    "LENGTH",
    "METRICS",
    "READABLE",
    "ROUGE1",
    "ROUGE1_F",
    "ROUGE2",
    "ROUGE2_F",
    "ROUGE_L",
    "CharacterTable",
    "Control",
    "DocumentFrequencies",
    "Merges",
    "Metric",
    "Pending",
    "Startable",
    "Style",
    "as_reward",
    "begin",
    "best_sentence_bleu",
    "chrf_metric",
    "cider_metric",
    "combined",
    "consensus",
    "detect",
    "from_path",
    "is_replayable",
    "mean_of",
    "metric_on_whole_words",
    "of_counts",
    "of_prefixes",
    "on_text",
    "on_whole_words",
    "on_words",
    "parse",
    "readable_metric",
    "replayable",
    "rouge2_recall",
    "sentence_bleu",
    "sum_signature",
    "summed_metric",
    "unk_as_word",
    "values_of",
    "weighted",
    "weighted_metric",
    "with_end",
    "with_ends",
]
