import itertools
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seqmixer.rewards import ngrams, rouge2_recall, sentence_bleu
from seqmixer.types import EOS, PAD, UNK, Rollout

WORDS = st.sampled_from([UNK, 4, 5, 6])
SENTENCE = st.lists(WORDS, max_size=8)


def padded(sentences, length):
    """Sentences with EOS where it fits, as data and decoding make them."""
    return torch.tensor([([*s, EOS] + [PAD] * length)[:length] for s in sentences])


def gram_counter(sentence, n, start):
    return Counter(tuple(sentence[i : i + n]) for i in range(len(sentence) - n + 1) if i + n - 1 >= start)


def without_unk(counter):
    return Counter({gram: count for gram, count in counter.items() if UNK not in gram})


@settings(deadline=None, max_examples=200)
@given(
    rows=st.lists(st.tuples(SENTENCE, st.lists(SENTENCE, min_size=2, max_size=2)), min_size=1, max_size=4),
    start=st.integers(0, 9),
    length=st.integers(8, 10),
)
def test_counts_are_those_of_a_counter(rows, start, length):
    words = padded([hypothesis for hypothesis, _ in rows], length)
    references = torch.stack([padded(several, 8) for _, several in rows])
    matched = ngrams.matched(words, references, 4, start)
    for n, (b, (hypothesis, several)) in itertools.product(range(1, 5), enumerate(rows)):
        own = gram_counter(hypothesis, n, start)
        others = [without_unk(gram_counter(r, n, start)) for r in several]
        assert ngrams.total(words, n, start)[b] == own.total()
        assert ngrams.total_known(references, n, start)[b].tolist() == [o.total() for o in others]
        assert matched[n - 1][b].sum(-1).tolist() == [(own & o).total() for o in others]
        assert matched[n - 1][b].any(0).sum() == (own & (others[0] | others[1])).total()


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
@pytest.mark.parametrize("start", range(12))
def test_a_start_that_is_a_tensor_counts_as_the_number_does(start, dtype):
    """MIXER's s is one, so that a captured program serves all its stages."""
    words, references = torch.randint(3, 7, (40, 10)), torch.randint(3, 7, (40, 2, 10))
    for sentences in (words, references):
        sentences[torch.rand(sentences.shape) < 0.08] = EOS
    tensor = torch.tensor(start, dtype=dtype)

    for n in (1, 2, 4):
        for count in (ngrams.total, ngrams.total_known):
            assert count(references, n, tensor).tolist() == count(references, n, start).tolist()
    for a, b in zip(
        ngrams.matched(words, references, 4, tensor), ngrams.matched(words, references, 4, start), strict=True
    ):
        assert torch.equal(a, b)
    for reward in (sentence_bleu, rouge2_recall):
        got, expected = (reward(Rollout(words, references, s)) for s in (tensor, start))
        assert got.dtype is expected.dtype is torch.float32
        assert torch.equal(got, expected)


def test_unk_matches_nothing_not_even_itself():
    words = torch.tensor([[UNK, 5, UNK, EOS]])
    unigrams, bigrams = ngrams.matched(words, words.unsqueeze(1), 2)
    assert unigrams.tolist() == [[[False, True, False, False]]]
    assert not bigrams.any()
    assert ngrams.total(words, 1) == 3
    assert ngrams.total_known(words, 1) == 1


@pytest.mark.parametrize("end", [EOS, PAD])
def test_nothing_after_the_end_counts(end):
    clean = torch.tensor([[4, 5, end, PAD, PAD, PAD]])
    dirty = torch.tensor([[4, 5, end, 4, 5, 6]])
    reference = torch.tensor([[[4, 5, 4, 5, 6, EOS]]])
    for n in (1, 2, 3):
        assert ngrams.total(dirty, n) == ngrams.total(clean, n) == max(3 - n, 0)
        assert ngrams.total_known(dirty, n) == max(3 - n, 0)
        assert ngrams.matched(dirty, reference, n)[-1].sum() == max(3 - n, 0)
        assert ngrams.matched(reference[:, 0], dirty.unsqueeze(1), n)[-1].sum() == max(3 - n, 0)


def test_no_gram_runs_from_one_reference_into_the_next():
    words = torch.tensor([[4, 5]])
    references = torch.tensor([[[6, 4], [5, 6]]])  # cropped: no EOS between them
    unigrams, bigrams = ngrams.matched(words, references, 2)
    assert unigrams.any(1).all()
    assert not bigrams.any()


@pytest.mark.parametrize(("hypothesis", "others", "closest"), [(3, [5, 1], 1), (3, [4, 2], 2), (3, [9, 4], 4)])
def test_the_closest_reference_length_is_the_shorter_of_two(hypothesis, others, closest):
    words = padded([[5] * hypothesis], 10)
    references = torch.stack([*padded([[5] * n for n in others], 10), torch.full((10,), PAD)]).unsqueeze(0)
    assert ngrams.closest_length(words, references).tolist() == [closest]


def test_a_missing_reference_is_not_an_empty_one():
    references = torch.tensor([[[PAD, PAD, PAD], [EOS, PAD, PAD], [4, 4, 4]]])
    assert ngrams.missing(references).tolist() == [[True, False, False]]
    empty = torch.tensor([[EOS, PAD]])
    assert ngrams.closest_length(empty, references).tolist() == [0]
    assert ngrams.closest_length(empty, references[:, [0, 2]]).tolist() == [3]
