"""Against sacreBLEU itself, on text that is hard to split."""

import pytest
import sacrebleu
import torch
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU, CHRF

from seqmixer.errors import RewardError
from seqmixer.rewards import readable_metric
from seqmixer.types import EOS, PAD, Rollout

WORDS = [
    "<pad>",
    "<s>",
    "</s>",
    "<unk>",
    *["The", "the", "cat", '"sat"', "3,000", "U.S.", "isn't", "...", ",", ".", "!", "a-b-c", "x&y", "é", "<unk>", "5%"],
]
ORACLES = {"sacrebleu": BLEU(), "sacrebleu_chrf": CHRF(), "sacrebleu_chrf++": CHRF(word_order=2)}
TEXT = st.lists(st.sampled_from(WORDS[4:]), max_size=12).map(" ".join)
PAIRS = st.lists(st.tuples(st.lists(st.integers(3, len(WORDS) - 1), max_size=10), st.lists(TEXT, min_size=1, max_size=3)), min_size=1, max_size=5)  # fmt: skip


def decode(ids):
    return " ".join(WORDS[i] for i in ids)


@pytest.mark.parametrize("name", ORACLES)
@given(PAIRS)
def test_the_score_of_a_corpus_is_that_of_sacrebleu(name, pairs):
    longest = max(len(words) for words, _ in pairs) + 1
    words = torch.tensor([[*ids, EOS, *[PAD] * (longest - len(ids) - 1)] for ids, _ in pairs])
    rollout = Rollout(words, words.unsqueeze(1), meta=[{"references": references} for _, references in pairs])
    metric = readable_metric(name, decode)
    rows = metric.statistics(rollout)
    most = max(len(references) for _, references in pairs)
    streams = [[(references + [None] * most)[i] for _, references in pairs] for i in range(most)]
    hypotheses = [decode(ids) for ids, _ in pairs]
    assert float(metric.corpus(rows)) == pytest.approx(ORACLES[name].corpus_score(hypotheses, streams).score, abs=1e-3)
    if name == "sacrebleu":
        each = [
            sacrebleu.sentence_bleu(h, references).score for h, (_, references) in zip(hypotheses, pairs, strict=True)
        ]
        assert (100 * metric.reward(rollout)).tolist() == pytest.approx(each, abs=1e-3)


def test_text_must_be_there():
    words = torch.tensor([[4, EOS]])
    with pytest.raises(RewardError, match="reward 'sacrebleu' reads text, but 1 sequences came with the text of 0"):
        readable_metric("sacrebleu", decode).statistics(Rollout(words, words.unsqueeze(1)))
