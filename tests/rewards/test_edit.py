import functools
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics import TER

from seqmixer.rewards import EDIT, EXACT, LENGTH, edit, unk_as_word
from seqmixer.types import EOS, PAD, UNK, Rollout

SENTENCE = st.lists(st.integers(UNK, 6), max_size=9)
ROWS = st.lists(st.tuples(SENTENCE, st.lists(SENTENCE, min_size=1, max_size=3)), min_size=1, max_size=8)


def padded(sentence, length):
    return ([*sentence, EOS] + [PAD] * length)[:length]


def tensors(rows, length=10):
    """Hypotheses, and references filled up to three with missing ones."""
    references = [
        [padded(r, length - 1) for r in several] + [[PAD] * (length - 1)] * (3 - len(several)) for _, several in rows
    ]
    return torch.tensor([padded(h, length) for h, _ in rows]), torch.tensor(references)


def levenshtein(a, b):
    """By its recursive definition; UNK is equal to nothing."""

    @functools.cache
    def d(i, j):
        if i == 0 or j == 0:
            return i + j
        differs = a[i - 1] != b[j - 1] or a[i - 1] == UNK
        return min(d(i - 1, j) + 1, d(i, j - 1) + 1, d(i - 1, j - 1) + differs)

    return d(len(a), len(b))


def similarity(a, b):
    return 1 - levenshtein(a, b) / max(len(a), len(b)) if a or b else 1.0


def ratio(a, b):
    return min(len(a), len(b)) / max(len(a), len(b)) if a or b else 1.0


@settings(deadline=None, max_examples=200)
@given(rows=ROWS)
def test_distance_is_levenshtein_s_and_the_most_similar_reference_counts(rows):
    words, references = tensors(rows)
    apart = edit.distance(words, references)
    best = []
    for own, (h, several) in zip(apart, rows, strict=True):
        assert own[: len(several)].tolist() == [levenshtein(h, r) for r in several]
        best.append(max(similarity(h, r) for r in several))
    counts = EDIT.statistics(Rollout(words, references))
    torch.testing.assert_close(edit.similarity(counts), torch.tensor(best))
    assert EDIT.corpus(counts).item() == pytest.approx(100 * sum(best) / len(best), abs=1e-4)


@settings(deadline=None, max_examples=200)
@given(rows=ROWS)
def test_exact_is_being_among_the_references(rows):
    words, references = tensors(rows)
    known = [h in several and UNK not in h for h, several in rows]
    assert EXACT.statistics(Rollout(words, references)).squeeze(1).tolist() == known
    assert EXACT.corpus(EXACT.statistics(Rollout(words, references))).item() == pytest.approx(
        100 * sum(known) / len(known)
    )
    metric = unk_as_word(EXACT)
    assert metric.statistics(Rollout(words, references)).squeeze(1).tolist() == [h in several for h, several in rows]


@pytest.mark.parametrize(("longer", "shorter"), [(6, 4), (4, 6)])
def test_exact_sentences_may_be_padded_to_different_lengths(longer, shorter):
    words = torch.tensor([padded([4, 5, 6], longer), padded([4, 5, 6], longer), padded([], longer)])
    references = torch.tensor([[padded([4, 5, 6], shorter)], [padded([4, 5], shorter)], [[PAD] * shorter]])
    assert EXACT.statistics(Rollout(words, references)).tolist() == [
        [1],
        [0],
        [0],
    ]  # a missing reference is not an empty one


@settings(deadline=None, max_examples=200)
@given(rows=ROWS)
def test_the_length_ratio_is_that_of_the_nearest_reference(rows):
    counts = LENGTH.statistics(Rollout(*tensors(rows)))
    best = [max(ratio(h, r) for r in several) for h, several in rows]
    torch.testing.assert_close(LENGTH.corpus(counts.unsqueeze(1)), 100 * torch.tensor(best))
    assert LENGTH.corpus(counts).item() == pytest.approx(100 * sum(best) / len(best), abs=1e-4)


def pair_without_use_for_a_shift(draw):
    """A reference, and a hypothesis that lacks some of its words and has others replaced by words of no reference.

    Each of those reference words costs an edit under any shift, so that no shift can save one.
    """
    reference = [draw.randint(4, 9) for _ in range(draw.randint(1, 12))]
    hypothesis = [draw.randint(20, 29) if draw.random() < 0.3 else word for word in reference if draw.random() < 0.8]
    return hypothesis, [reference]


def as_text(sentence):
    return " ".join(f"w{word}" for word in sentence)


def test_edits_are_those_of_sacrebleu_s_ter_where_no_shift_helps():
    draw = random.Random(0)
    for _ in range(30):
        rows = [pair_without_use_for_a_shift(draw) for _ in range(20)]
        counts = EDIT.statistics(Rollout(*tensors(rows, 14)))
        streams = [[as_text(several[0]) for _, several in rows]]
        expected = TER().corpus_score([as_text(h) for h, _ in rows], streams).score
        edits, _, words = counts.sum(0).tolist()
        assert 100 * edits / words == pytest.approx(expected, abs=1e-4)


def test_rows_of_many_samples_score_at_once():
    draw = random.Random(1)
    rows = EDIT.statistics(Rollout(*tensors([pair_without_use_for_a_shift(draw) for _ in range(30)], 14)))
    samples = torch.randint(30, (5, 30))
    torch.testing.assert_close(edit.corpus(rows[samples]), torch.stack([edit.corpus(rows[s]) for s in samples]))


@pytest.mark.parametrize("metric", [EDIT, EXACT, LENGTH], ids=lambda metric: metric.name)
@pytest.mark.parametrize("end", [EOS, PAD])
def test_nothing_after_the_end_counts(metric, end):
    clean, dirty = torch.tensor([[4, 5, end, PAD, PAD]]), torch.tensor([[4, 5, end, 7, 8]])
    other = torch.tensor([[4, 5, 7, 8, EOS]])
    for pair in [(clean, other), (other, clean), (clean, clean)]:
        wanted = metric.statistics(Rollout(pair[0], pair[1].unsqueeze(1)))
        written = [dirty if words is clean else words for words in pair]
        assert metric.statistics(Rollout(written[0], written[1].unsqueeze(1))).tolist() == wanted.tolist()


@pytest.mark.parametrize(
    ("metric", "name", "signature"),
    [
        (EDIT, "edit", "edit|similarity|mean:sentences|unk:never-matches|refs:best"),
        (EXACT, "exact", "exact|mean:sentences|unk:never-matches|refs:any"),
        (LENGTH, "length", "length|shorter/longer|mean:sentences|refs:best"),
    ],
)
def test_the_signature_says_how_the_score_is_made(metric, name, signature):
    assert (metric.name, metric.signature) == (name, signature)
