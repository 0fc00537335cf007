import itertools
import random
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

from seqmixer.rewards import ROUGE_L, lcs, rouge, unk_as_word
from seqmixer.types import EOS, PAD, UNK, Rollout

SENTENCE = st.lists(st.integers(UNK, 7), max_size=9)
ROWS = st.lists(st.tuples(SENTENCE, st.lists(SENTENCE, min_size=1, max_size=3)), min_size=1, max_size=8)


def padded(sentence, length):
    return ([*sentence, EOS] + [PAD] * length)[:length]


def tensors(rows):
    """Hypotheses, and references filled up to three with missing ones."""
    references = [[padded(r, 9) for r in several] + [[PAD] * 9] * (3 - len(several)) for _, several in rows]
    return torch.tensor([padded(h, 10) for h, _ in rows]), torch.tensor(references)


def as_text(sentence):
    return " ".join("unk" if word == UNK else f"w{word}" for word in sentence)


def subsequences(sentence):
    return {chosen for n in range(len(sentence) + 1) for chosen in itertools.combinations(sentence, n)}


def test_the_longest_common_subsequence_is_that_of_all_subsequences():
    draw = random.Random(0)
    pairs = [[[draw.randint(4, 6) for _ in range(draw.randint(0, 6))] for _ in range(2)] for _ in range(200)]
    words = torch.tensor([padded(h, 6) for h, _ in pairs])
    references = torch.tensor([[padded(r, 7)] for _, r in pairs])
    expected = [max(map(len, subsequences(h) & subsequences(r))) for h, r in pairs]
    assert lcs.longest(words, references).squeeze(1).tolist() == expected


@settings(deadline=None, max_examples=200)
@given(rows=ROWS)
def test_precision_recall_and_f1_are_rouge_score_s(rows):
    scorer = RougeScorer(["rougeL"], use_stemmer=False)
    words, references = tensors(rows)
    metric = unk_as_word(ROUGE_L)
    counts = metric.statistics(Rollout(words, references[:, :1]))
    for own, (h, several) in zip(counts, rows, strict=True):
        score = scorer.score(as_text(several[0]), as_text(h))["rougeL"]
        assert (own[0] / own[1].clamp(min=1)).item() == pytest.approx(score.precision, abs=1e-6)
        assert rouge.recall(own).item() == pytest.approx(score.recall, abs=1e-6)
        assert rouge.f1(own).item() == pytest.approx(score.fmeasure, abs=1e-6)
    best = [scorer.score_multi([as_text(r) for r in several], as_text(h))["rougeL"].fmeasure for h, several in rows]
    counts = metric.statistics(Rollout(words, references))
    torch.testing.assert_close(rouge.f1(counts), torch.tensor(best, dtype=torch.float32), rtol=0, atol=1e-6)
    assert metric.corpus(counts).item() == pytest.approx(100 * sum(best) / len(best), abs=1e-4)


def test_sentences_may_have_any_length():
    scorer = RougeScorer(["rougeL"], use_stemmer=False)
    draw = random.Random(1)
    pairs = [[[draw.randint(4, 30) for _ in range(draw.randint(60, 300))] for _ in range(2)] for _ in range(10)]
    words = torch.tensor([padded(h, 301) for h, _ in pairs])
    references = torch.tensor([[padded(r, 301)] for _, r in pairs])
    expected = [scorer.score(as_text(r), as_text(h))["rougeL"].fmeasure for h, r in pairs]
    scores = rouge.f1(ROUGE_L.statistics(Rollout(words, references)))
    torch.testing.assert_close(scores, torch.tensor(expected), rtol=0, atol=1e-6)


def test_unk_matches_nothing_and_is_left_out_of_the_reference():
    words = torch.tensor([[4, UNK, 5, EOS, PAD]])
    references = torch.tensor([[[4, UNK, 5, 6, EOS]]])
    assert ROUGE_L.statistics(Rollout(words, references)).tolist() == [[2, 3, 3]]
    assert unk_as_word(ROUGE_L).statistics(Rollout(words, references)).tolist() == [[3, 3, 4]]


@pytest.mark.parametrize("end", [EOS, PAD])
def test_nothing_after_the_end_counts(end):
    dirty = torch.tensor([[4, end, 5, 6]])
    clean = torch.tensor([[4, 5, 6, EOS]])
    assert ROUGE_L.statistics(Rollout(dirty, clean.unsqueeze(1))).tolist() == [[1, 1, 3]]
    assert ROUGE_L.statistics(Rollout(clean, dirty.unsqueeze(1))).tolist() == [[1, 3, 1]]


def test_the_row_is_that_of_the_best_reference():
    words = torch.tensor([[4, 5, 6, 7, EOS]])
    references = torch.tensor([[[PAD] * 5, [4, EOS, PAD, PAD, PAD], [4, 8, 6, 7, EOS]]])
    assert ROUGE_L.statistics(Rollout(words, references)).tolist() == [[3, 4, 4]]
    by_recall = partial(lcs.statistics, score=rouge.recall)
    assert by_recall(words, references).tolist() == [[1, 4, 1]]


def test_the_signature_says_how_the_score_is_made():
    signature = "rouge|lcs|f1|mean:sentences|unk:left-out|refs:best"
    assert (ROUGE_L.name, ROUGE_L.signature) == ("rouge_l", signature)
