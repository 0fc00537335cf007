"""What a sequence is paid, and how a corpus is scored, from the same counts (Sec. 4)."""

from seqmixer.rewards.bleu import sentence_bleu
from seqmixer.rewards.metric import BLEU, ROUGE2, Metric
from seqmixer.rewards.rouge import rouge2_recall
from seqmixer.rewards.text import checked, from_path, on_text, on_words

__all__ = [
    "BLEU",
    "ROUGE2",
    "Metric",
    "checked",
    "from_path",
    "on_text",
    "on_words",
    "rouge2_recall",
    "sentence_bleu",
]
