import random
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics import CHRF

import sentences
from seqmixer.rewards import chrf
from seqmixer.rewards.characters import CharacterTable, Units
from seqmixer.rewards.metric import unk_as_word
from seqmixer.rewards.ngrams import ranks, together
from seqmixer.types import BOS, EOS, PAD, UNK, Rollout

SPECIALS = ["<pad>", "<s>", "</s>", "<unk>"]
WORDS = ["a", "b", "ab", "aba", "ba!", "!", "(b", "(a)", "...", "cabbage", "ä", "don't"]
LARGE = [chr(0x4E00 + i) + chr(0x5E00 + i) for i in range(600)] + ["a", "ab", "𝔞b"]  # six of these do not fit 63 bits
TABLE = CharacterTable.build(SPECIALS + WORDS)
WIDTH = 9
tensors = partial(sentences.tensors, width=WIDTH)


def text(sentence, words=WORDS):
    return " ".join(words[i - 4] for i in sentence)


def sentence(smallest=4):
    return st.lists(st.integers(smallest, 3 + len(WORDS)), max_size=WIDTH)


def examples(smallest=4):
    return st.lists(
        st.tuples(sentence(smallest), st.lists(sentence(smallest), min_size=1, max_size=3)), min_size=1, max_size=10
    )


@settings(max_examples=120, deadline=None, database=None)
@given(examples=examples(), word_order=st.sampled_from([0, 2]))
def test_sentences_and_corpora_score_as_in_sacrebleu(examples, word_order):
    hypotheses, references = zip(*examples, strict=True)
    scorer = CHRF(word_order=word_order)
    rows = chrf.statistics(*tensors(hypotheses, references), TABLE, word_order)
    assert rows.dtype == torch.float32
    expected = [
        scorer._extract_corpus_statistics([text(h)], [[text(r)] for r in several])[0]
        for h, several in zip(hypotheses, references, strict=True)
    ]
    assert rows.tolist() == expected
    scores = [
        scorer.sentence_score(text(h), [text(r) for r in several]).score
        for h, several in zip(hypotheses, references, strict=True)
    ]
    assert chrf.corpus(rows.unsqueeze(1)).tolist() == pytest.approx(scores, abs=1e-4)
    most = max(map(len, references))
    streams = [[text(r[i]) if i < len(r) else None for r in references] for i in range(most)]
    score = scorer.corpus_score([text(h) for h in hypotheses], streams).score
    assert chrf.corpus(rows).item() == pytest.approx(score, abs=1e-4)


@pytest.mark.parametrize("word_order", [0, 2])
@pytest.mark.parametrize("kept", [(0, 1, 2, -3, -2, -1), (0, 256, 512)], ids=["some", "512 characters apart"])
def test_large_alphabets_are_as_exact(word_order, kept):
    """Characters 512 apart differ in the bits that an int64 would lose of the first of six."""
    draw = random.Random(0)
    table = CharacterTable.build(SPECIALS + LARGE)
    assert 6 * table.characters.kinds.bit_length() > chrf.BITS
    kept = [4 + place % len(LARGE) for place in kept]
    for _ in range(20):
        hypotheses, references = (
            [[draw.choice(kept) for _ in range(draw.randint(0, 8))] for _ in range(10)] for _ in range(2)
        )
        rows = chrf.statistics(*tensors(hypotheses, [[r] for r in references]), table, word_order)
        scorer = CHRF(word_order=word_order)
        expected = scorer._extract_corpus_statistics(
            [text(h, LARGE) for h in hypotheses], [[text(r, LARGE) for r in references]]
        )
        assert rows.tolist() == expected


@settings(max_examples=40, deadline=None, database=None)
@given(examples=examples(smallest=UNK))
def test_each_unk_is_a_character_of_its_own(examples):
    fresh = (chr(0xE000 + i) for i in range(6000))

    def private(sentence):
        return " ".join(next(fresh) if i == UNK else WORDS[i - 4] for i in sentence)

    hypotheses, references = zip(*examples, strict=True)
    for word_order in (0, 2):
        rows = chrf.statistics(*tensors(hypotheses, references), TABLE, word_order)
        expected = [
            CHRF(word_order=word_order).sentence_score(private(h), [private(r) for r in several]).score
            for h, several in zip(hypotheses, references, strict=True)
        ]
        assert chrf.corpus(rows.unsqueeze(1)).tolist() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("hypothesis", "references"),
    [
        ([], [[4, 5]]),
        ([4], [[]]),
        ([], [[]]),
        ([4], [[4]]),
        ([4], [[5]]),
        ([13] * 9, [[13]]),  # cropped: no EOS
        ([13], [[13] * 9]),
        ([4, 4, 4, 4], [[4, 4], [4] * 8]),
        ([6, 5], [[4, 5, 5], [4, 11]]),  # "ab b" is "a b b" without its spaces
    ],
)
def test_a_special_sentence_scores_as_in_sacrebleu(hypothesis, references):
    rollout = Rollout(*tensors([hypothesis], [references]))
    for reward, word_order in ((chrf.chrf_metric(TABLE).reward, 0), (chrf.chrf_metric(TABLE, "chrf++").reward, 2)):
        score = CHRF(word_order=word_order).sentence_score(text(hypothesis), [text(r) for r in references]).score
        assert 100 * reward(rollout).item() == pytest.approx(score, abs=1e-4)


def test_missing_references_do_not_count():
    reward = chrf.chrf_metric(TABLE).reward
    words, references = tensors([[4, 5, 13], [4, 5]], [[[5, 13]], [[4, 7], [8]]])
    missing = torch.full_like(references[:, :1], PAD)
    more = torch.cat([missing, references, missing], 1)
    torch.testing.assert_close(reward(Rollout(words, more)), reward(Rollout(words, references)))
    assert reward(Rollout(words, missing)).tolist() == [0, 0]


def test_of_references_that_score_alike_the_first_counts():
    words, references = tensors([[4]], [[[5], [5, 5, 5]]])
    assert chrf.statistics(words, references, TABLE, 0)[0, :3].tolist() == [1, 1, 0]
    assert chrf.statistics(words, references.flip(1), TABLE, 0)[0, :3].tolist() == [1, 3, 0]


def test_the_reward_is_the_score_of_the_sentence_whatever_was_given():
    words, references = tensors([[13, 4], [5, 6]], [[[13, 5]], [[6, 6]]])
    rows = chrf.chrf_metric(TABLE).statistics(Rollout(words, references))
    expected = torch.stack([chrf.corpus(row.unsqueeze(0)) for row in rows]) / 100
    torch.testing.assert_close(chrf.chrf_metric(TABLE).reward(Rollout(words, references, start=1)), expected)
    assert (expected > 0).all()


def test_samples_of_rows_score_at_once():
    words, references = tensors([[13, 4], [5, 6], [4]], [[[13, 5]], [[6, 6]], [[4, 4]]])
    rows = chrf.statistics(words, references, TABLE, 2)
    samples = torch.randint(3, (4, 3))
    torch.testing.assert_close(chrf.corpus(rows[samples]), torch.stack([chrf.corpus(rows[s]) for s in samples]))


def test_unk_can_be_a_word_like_any_other():
    metric = chrf.chrf_metric(TABLE)
    words, references = tensors([[UNK, 4]], [[[UNK, 4]]])
    assert metric.corpus(metric.statistics(Rollout(words, references))) < 70
    same = unk_as_word(metric)
    assert same.corpus(same.statistics(Rollout(words, references))).item() == 100


def test_words_are_spelt_without_gaps():
    units = Units.build([[], [], [], ["?"], ["x", "y"], ["y"]])
    words = torch.tensor([[BOS, 5, 4, UNK, UNK, EOS, 4]])
    assert units.spell(words, unknown=10).tolist() == [[3, 2, 3, 17, 18, *[0] * 9]]
    assert units.of(torch.tensor([[-1, UNK]])).tolist() == [[[1, 0], [1, 0]]]


def test_white_space_in_a_word_separates():
    table = CharacterTable.build([*SPECIALS, "new york!", " "])
    assert table.characters.table[4].count_nonzero() == len("newyork!")
    assert table.tokens.table[4].count_nonzero() == len(["new", "york", "!"])
    assert table.characters.table[5].count_nonzero() == 0


def test_ranks_are_dense_and_in_order():
    keys = torch.randint(-3, 4, (5, 2, 30))
    for row, ranked in zip(keys.flatten(0, 1).tolist(), ranks(keys).flatten(0, 1).tolist(), strict=True):
        assert ranked == [sorted(set(row)).index(key) for key in row]
    assert ranks(torch.zeros(3, 0, dtype=torch.long)).shape == (3, 0)


@pytest.mark.parametrize(("length", "other"), [(2, 3), (3, 2)])
def test_sentences_of_an_example_are_padded_to_one_length(length, other):
    both = together(torch.full((1, length), 5), torch.full((1, 2, other), 6))
    hypothesis, reference = [5] * length + [PAD] * (3 - length), [6] * other + [PAD] * (3 - other)
    assert both.tolist() == [[hypothesis, reference, reference]]


@pytest.mark.parametrize("name", ["chrf", "chrf++"])
def test_chrf_does_not_synchronise_with_the_device(name):
    """The meta device holds no values: an `.item()`, or a tensor made elsewhere, raises there."""
    words = torch.ones(4, 6, dtype=torch.long, device="meta")
    references = torch.ones(4, 3, 5, dtype=torch.long, device="meta")
    result = chrf.chrf_metric(TABLE, name).reward(Rollout(words, references))
    assert result.shape == (4,)
    assert result.device.type == "meta"


def test_the_signatures_say_how_the_scores_are_made():
    plain, plus = chrf.chrf_metric(TABLE), chrf.chrf_metric(TABLE, "chrf++")
    assert (plain.name, plus.name) == ("chrf", "chrf++")
    assert plain.signature == "chrf|nc:6|nw:0|beta:2|space:no|eff:yes|unk:never-matches|refs:best"
    assert plus.signature == "chrf|nc:6|nw:2|beta:2|space:no|eff:yes|unk:never-matches|refs:best"
