import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pycocoevalcap.bleu.bleu_scorer import BleuScorer
from sacrebleu import corpus_bleu
from sacrebleu.metrics import BLEU as SacreBLEU

from sentences import grams, row
from seqmixer.rewards import (
    BLEU,
    BLEU_BEST,
    BLEU_MEAN,
    best_sentence_bleu,
    bleu,
    rouge2_recall,
    sentence_bleu,
    unk_as_word,
    with_end,
)
from seqmixer.types import EOS, PAD, UNK, Rollout


def released(hypothesis, reference, s):
    """The rule of the authors' code, word for word, for one pair without EOS."""
    order = min(4, len(hypothesis) - s, len(reference) - s)
    if order <= 0:
        return 0.0
    logs = 0.0
    for n in range(1, order + 1):
        own, other = grams(hypothesis, n, s), grams(reference, n, s)
        matches = sum(min(count, other[gram]) for gram, count in own.items() if UNK not in gram)
        logs += math.log((matches + 1) / (sum(own.values()) + 1))
    brevity = math.exp(1 - (len(reference) + 1) / len(hypothesis)) if len(hypothesis) < len(reference) else 1.0
    return math.exp(logs / order) * brevity


def sentences(draw, count, longest, smallest=UNK, shortest=0):
    return [[draw.randint(smallest, 7) for _ in range(draw.randint(shortest, longest))] for _ in range(count)]


@pytest.mark.parametrize("start", range(10))
def test_the_reward_is_the_released_rule(start):
    draw = random.Random(start)
    hypotheses = [*sentences(draw, 98, 14), [], [5] * 14]  # 14 words fill T = 14: cropped, no EOS
    references = [*sentences(draw, 98, 16), [5, 5], []]
    words = torch.tensor([row(h, 14) for h in hypotheses])
    others = torch.tensor([[row(r, 16)] for r in references])
    rewards = sentence_bleu(Rollout(words, others, start))
    expected = [released(h, r, start) for h, r in zip(hypotheses, references, strict=True)]
    assert rewards.dtype == torch.float32
    torch.testing.assert_close(rewards, torch.tensor(expected))


def test_several_references_reward_by_the_most_matches_and_the_closest_length():
    words = torch.tensor([[4, 4, 5, EOS]])
    references = torch.tensor([[[4, 4, EOS, PAD, PAD], [5, 6, 7, 7, EOS], [PAD] * 5]])
    precisions = [4 / 4, 2 / 3]  # all three words; "4 4" but not "4 5"; order 2, as the closest reference has 2 words
    expected = math.sqrt(math.prod(precisions))
    torch.testing.assert_close(sentence_bleu(Rollout(words, references)), torch.tensor([expected]))


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("longest", [4, 7, 15])
def test_corpus_bleu_is_sacrebleu(count, longest):
    draw = random.Random(count)
    for _ in range(10):
        hypotheses = sentences(draw, 20, longest, smallest=4)
        references = [sentences(draw, 20, 12, smallest=4) for _ in range(count)]  # R streams of 20
        words = torch.tensor([row(h, 16) for h in hypotheses])
        others = torch.tensor([[row(r, 16) for r in several] for several in zip(*references, strict=True)])
        score = BLEU.corpus(BLEU.statistics(Rollout(words, others)))
        assert score.dtype == torch.float32
        assert score.item() == pytest.approx(sacre(hypotheses, references), abs=1e-4)


@pytest.mark.parametrize(
    ("hypotheses", "references"),
    [
        ([[]], [[4, 5, 6, 7]]),  # nothing written
        ([[4, 5, 6]], [[4, 5, 6]]),  # right, but too short to have a 4-gram
        ([[4, 5, 6, 8, 4]], [[4, 5, 6, 7, 4]]),  # no 4-gram matches
        ([[8, 8, 8, 8]], [[4, 5, 6, 7]]),  # nothing matches
        ([[4, 5, 6, 7]], [[]]),  # an empty reference
        ([[4, 5, 6, 7, 8], []], [[4, 5, 6, 7, 8], [4, 5]]),  # one of two
        ([[4, 5, 6, 7]], [[4, 5, 6, 7]]),
    ],
)
def test_corpus_bleu_is_sacrebleu_on_short_corpora(hypotheses, references):
    words = torch.tensor([row(h, 8) for h in hypotheses])
    others = torch.tensor([[row(r, 8)] for r in references])
    score = BLEU.corpus(BLEU.statistics(Rollout(words, others))).item()
    assert score == pytest.approx(sacre(hypotheses, [references]), abs=1e-4)


def sacre(hypotheses, references):
    def text(sentence):
        return " ".join(map(str, sentence))

    streams = [[text(r) for r in stream] for stream in references]
    return corpus_bleu([text(h) for h in hypotheses], streams, smooth_method="none", tokenize="none", force=True).score


def test_a_corpus_without_rows_scores_nothing():
    assert BLEU.corpus(torch.zeros(0, 10)).item() == 0.0


def test_summed_rows_score_as_their_corpus_and_samples_of_rows_score_at_once():
    draw = random.Random(0)
    words = torch.tensor([row(s, 12) for s in sentences(draw, 30, 11, shortest=8)])
    others = torch.tensor([[row(s, 12)] for s in sentences(draw, 30, 11, shortest=8)])
    rows = bleu.statistics(words, others)
    assert rows.shape == (30, 10)
    assert bleu.corpus(rows) > 0
    torch.testing.assert_close(bleu.corpus(rows.sum(0, keepdim=True)), bleu.corpus(rows))
    halves = torch.cat([bleu.statistics(words[:11], others[:11]), bleu.statistics(words[11:], others[11:])])
    torch.testing.assert_close(halves, rows)
    samples = torch.randint(30, (5, 30))
    torch.testing.assert_close(bleu.corpus(rows[samples]), torch.stack([bleu.corpus(rows[s]) for s in samples]))


def test_a_row_says_what_was_counted():
    words = torch.tensor([[4, 5, 6, UNK, EOS, PAD]])
    references = torch.tensor([[[4, 5, 6, 7, 8, EOS]]])
    assert bleu.statistics(words, references).tolist() == [[3, 2, 1, 0, 4, 3, 2, 1, 4, 5]]
    assert bleu.statistics(words, references, start=2).tolist() == [[1, 1, 1, 0, 2, 2, 2, 1, 4, 5]]


@pytest.mark.parametrize("reward", [sentence_bleu, best_sentence_bleu, rouge2_recall, with_end(BLEU).reward])
@pytest.mark.parametrize("start", [0, 3])
def test_rewards_ask_the_device_no_question(reward, start):
    """The meta device holds no values: an `.item()`, or a tensor made elsewhere, raises there."""
    words = torch.ones(4, 6, dtype=torch.long, device="meta")
    references = torch.ones(4, 3, 5, dtype=torch.long, device="meta")
    result = reward(Rollout(words, references, start))
    assert result.shape == (4,)
    assert result.device.type == "meta"


@pytest.mark.parametrize("start", [0, 2])
def test_best_bleu_is_the_highest_over_the_references_of_each_sentence(start):
    words = torch.randint(4, 9, (6, 7))
    references = torch.randint(4, 9, (6, 5, 8))
    references[2, 3:] = 0  # three references only
    best = []
    for i in range(6):
        there = [reference for reference in references[i] if reference.any()]
        best.append(max(released(words[i].tolist(), reference.tolist(), start) for reference in there))
    assert best_sentence_bleu(Rollout(words, references, start)).tolist() == pytest.approx(best)
    if start == 0:
        assert float(BLEU_BEST.corpus(BLEU_BEST.statistics(Rollout(words, references)))) == pytest.approx(
            100 * sum(best) / 6
        )


@pytest.mark.parametrize("start", [0, 3])
def test_with_its_end_a_sentence_has_one_word_more_and_is_paid_for_it(start):
    draw = random.Random(start)
    hypotheses = [*sentences(draw, 48, 8), [5] * 9, [4, 5]]  # nine words fill T = 9: cropped, no EOS
    references = [*sentences(draw, 48, 10), [5] * 9, [4, 5]]
    words = torch.tensor([row(h, 9) for h in hypotheses])
    others = torch.tensor([[row(r, 11)] for r in references])
    rewards = with_end(BLEU).reward(Rollout(words, others, start))
    ended = [[*h, "end"] if len(h) < 9 else h for h in hypotheses]
    expected = [released(h, [*r, "end"], start) for h, r in zip(ended, references, strict=True)]
    torch.testing.assert_close(rewards, torch.tensor(expected))
    torch.testing.assert_close(with_end(BLEU_BEST).reward(Rollout(words, others, start)), torch.tensor(expected))


def test_the_signature_says_how_the_score_is_made():
    assert (BLEU.name, BLEU.signature) == ("bleu", "bleu|order:4|smooth:none|unk:never-matches|refs:closest")
    rest = "bleu|order:4-effective|smooth:exp|mean:sentences|unk:never-matches|refs:closest"
    assert (BLEU_MEAN.name, BLEU_MEAN.signature) == ("bleu_mean", rest)


# Each row: a hypothesis and one to three references, of few words, so that grams repeat and match.
SENTENCE = st.lists(st.integers(UNK, 6), max_size=9)
ROWS = st.lists(st.tuples(SENTENCE, st.lists(SENTENCE, min_size=1, max_size=3)), min_size=1, max_size=8)
SMOOTHINGS = {
    "none": (bleu.unsmoothed, "none"),
    "exp": (bleu.halving, "exp"),
}


def tensors(rows, count=3):
    """Hypotheses, and references filled up to `count` with missing ones."""
    references = [[row(r, 9) for r in several] + [[PAD] * 9] * (count - len(several)) for _, several in rows]
    return torch.tensor([row(h, 10) for h, _ in rows]), torch.tensor(references)


def as_text(sentence, unk):
    return " ".join(unk if word == UNK else f"w{word}" for word in sentence)


def as_texts(rows):
    """A different word for UNK on each side: it matches nothing."""
    return [(as_text(h, "hypothesis-unk"), [as_text(r, "reference-unk") for r in several]) for h, several in rows]


def close(expected):
    return pytest.approx(expected, rel=2e-5, abs=1e-4)


@pytest.mark.parametrize("effective", [False, True])
@pytest.mark.parametrize("name", SMOOTHINGS)
@settings(deadline=None, max_examples=50)
@given(rows=ROWS, order=st.integers(1, 6))
def test_smoothed_bleu_is_sacrebleu_for_sentences_and_for_their_corpus(name, effective, rows, order):
    smoothing, method = SMOOTHINGS[name]
    sacre = SacreBLEU(
        tokenize="none",
        smooth_method=method,
        effective_order=effective,
        max_ngram_order=order,
        force=True,
    )
    counts = bleu.statistics(*tensors(rows), order=order)
    assert counts.shape == (len(rows), 2 * order + 2)
    scores = 100 * bleu.score(counts, smoothing, effective)
    texts = as_texts(rows)
    assert scores.tolist() == close([sacre.sentence_score(*pair).score for pair in texts])
    streams = [[refs[i % len(refs)] for _, refs in texts] for i in range(3)]  # a repeated reference changes nothing
    expected = sacre.corpus_score([h for h, _ in texts], streams).score
    assert bleu.corpus(counts, smoothing, effective).item() == close(expected)


@settings(deadline=None, max_examples=100)
@given(rows=ROWS)
def test_mean_bleu_is_sacrebleu_s_sentence_bleu_of_text(rows):
    sacre = SacreBLEU(tokenize="none", effective_order=True)
    counts = BLEU_MEAN.statistics(Rollout(*tensors(rows)))
    expected = [sacre.sentence_score(*pair).score for pair in as_texts(rows)]
    assert BLEU_MEAN.corpus(counts.unsqueeze(1)).tolist() == close(expected)
    assert BLEU_MEAN.corpus(counts).item() == close(sum(expected) / len(expected))
    assert BLEU.of_each(counts).tolist() == close(expected)
    same_unk = [sacre.sentence_score(as_text(h, "unk"), [as_text(r, "unk") for r in several]) for h, several in rows]
    metric = unk_as_word(BLEU_MEAN)
    counts = metric.statistics(Rollout(*tensors(rows)))
    assert metric.corpus(counts.unsqueeze(1)).tolist() == close([score.score for score in same_unk])


@settings(deadline=None, max_examples=100)
@given(rows=ROWS)
def test_bleu_is_pycocoevalcap_s_where_each_order_has_a_match(rows):
    """Without a match it has 1e-15 matches and a score near 0.0001, where BLEU is 0; else the definitions agree."""
    scorer = BleuScorer(n=4)
    for pair in as_texts(rows):
        scorer += pair
    pooled, each = scorer.compute_score(option="closest")
    for order in range(1, 5):
        counts = bleu.statistics(*tensors(rows), order=order)
        for score, expected, own in zip(bleu.score(counts), each[order - 1], counts, strict=True):
            matched = own[:order].all()
            assert score.item() == (close(expected) if matched else 0)
        matched = counts.sum(0)[:order].all()
        assert bleu.corpus(counts).item() == (close(100 * pooled[order - 1]) if matched else 0)


def test_the_reference_length_is_the_closest():
    words = torch.tensor([[4, 5, 6, 7, EOS]])
    references = torch.tensor([[[4, 5, 6, 7, 8], [4, EOS, PAD, PAD, PAD], [PAD] * 5]])
    assert bleu.statistics(words, references, order=1).tolist() == [[4, 4, 4, 5]]
