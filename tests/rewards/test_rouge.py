import random
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

from sentences import grams, row
from seqmixer.rewards import ROUGE1, ROUGE1_F, ROUGE2, ROUGE2_F, rouge, rouge2_recall, unk_as_word
from seqmixer.types import EOS, PAD, UNK, Rollout


def released(hypothesis, reference, n, s):
    """The rule of the authors' code for one pair without EOS."""
    if min(len(hypothesis), len(reference)) - s < n:
        return 0.0
    own, other = grams(hypothesis, n, s), grams(reference, n, s)
    other = {gram: count for gram, count in other.items() if UNK not in gram}
    matches = sum(min(own[gram], count) for gram, count in other.items())
    return matches / sum(other.values()) if other else 0.0


def sentences(draw, count, longest):
    return [[draw.randint(UNK, 6) for _ in range(draw.randint(0, longest))] for _ in range(count)]


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("start", range(10))
def test_the_reward_is_the_released_rule(n, start):
    draw = random.Random(start)
    hypotheses = [*sentences(draw, 98, 14), [], [5] * 14]  # 14 words fill T = 14: cropped, no EOS
    references = [sentences(draw, 100, 16) for _ in range(3)]
    words = torch.tensor([row(h, 14) for h in hypotheses])
    others = torch.tensor([[row(r, 16) for r in several] for several in zip(*references, strict=True)])
    expected = [[released(h, r, n, start) for h, r in zip(hypotheses, rs, strict=True)] for rs in references]
    one = rouge.released_recall(Rollout(words, others[:, :1], start), n)
    assert one.dtype == torch.float32
    torch.testing.assert_close(one, torch.tensor(expected[0]))
    best = torch.tensor(expected).amax(0)
    torch.testing.assert_close(rouge.released_recall(Rollout(words, others, start), n), best)


def test_the_paper_s_reward_is_of_order_two():
    rollout = Rollout(torch.tensor([[4, 5, 6, 5, EOS]]), torch.tensor([[[5, 6, 4, 5, 5, EOS]]]), start=1)
    assert rouge2_recall(rollout).tolist() == rouge.released_recall(rollout, 2).tolist() == [0.5]


def test_a_row_is_that_of_the_best_reference():
    words = torch.tensor([[4, 5, 6, EOS, PAD]])
    references = torch.tensor([[[4, 5, 7, 7, EOS], [5, 6, UNK, 7, 7], [PAD] * 5, [6, 6, EOS, PAD, PAD]]])
    assert rouge.statistics(words, references, 2, rouge.recall).tolist() == [
        [1, 2, 2]
    ]  # (5 6) of (5 6), (7 7); not a third


def test_corpus_score_is_the_mean_of_the_sentences():
    draw = random.Random(1)
    words = torch.tensor([row(h, 9) for h in sentences(draw, 40, 9)])
    references = [sentences(draw, 40, 11) for _ in range(2)]
    others = torch.tensor([[row(r, 12) for r in several] for several in zip(*references, strict=True)])
    rows = ROUGE2.statistics(Rollout(words, others))
    assert rows.shape == (40, 3)
    assert ROUGE2.corpus(rows) > 0
    torch.testing.assert_close(ROUGE2.corpus(rows), 100 * rouge2_recall(Rollout(words, others)).mean())
    torch.testing.assert_close(ROUGE2.corpus(rows.unsqueeze(1)) / 100, rouge2_recall(Rollout(words, others)))


def test_a_reference_without_a_known_gram_pays_nothing():
    words = torch.tensor([[UNK, UNK, EOS]])
    reward = partial(rouge.released_recall, n=2)
    assert reward(Rollout(words, words.unsqueeze(1))).tolist() == [0.0]
    assert reward(Rollout(words, torch.full((1, 1, 3), PAD))).tolist() == [0.0]


@pytest.mark.parametrize(
    ("metric", "name", "says"),
    [
        (ROUGE1, "rouge1", "order:1|recall"),
        (ROUGE2, "rouge2", "order:2|recall"),
        (ROUGE1_F, "rouge1_f", "order:1|f1"),
        (ROUGE2_F, "rouge2_f", "order:2|f1"),
    ],
)
def test_the_signature_says_how_the_score_is_made(metric, name, says):
    assert (metric.name, metric.signature) == (name, f"rouge|{says}|mean:sentences|unk:left-out|refs:best")


SENTENCE = st.lists(st.integers(UNK, 6), max_size=9)
ROWS = st.lists(st.tuples(SENTENCE, st.lists(SENTENCE, min_size=1, max_size=3)), min_size=1, max_size=8)


def tensors(rows):
    """Hypotheses, and references filled up to three with missing ones."""
    references = [[row(r, 9) for r in several] + [[PAD] * 9] * (3 - len(several)) for _, several in rows]
    return torch.tensor([row(h, 10) for h, _ in rows]), torch.tensor(references)


def as_text(sentence, unk="unk"):
    return " ".join(unk if word == UNK else f"w{word}" for word in sentence)


@pytest.mark.parametrize("n", [1, 2, 3])
@settings(deadline=None, max_examples=200)
@given(rows=ROWS)
def test_precision_recall_and_f1_are_rouge_score_s(n, rows):
    scorer = RougeScorer([f"rouge{n}"], use_stemmer=False)
    words, references = tensors(rows)
    known = references.masked_fill(references == UNK, 7)  # no hypothesis has a 7: UNK matches nothing, but is counted
    counts = rouge.statistics(words, known[:, :1], n, rouge.f1)
    for own, (h, several) in zip(counts, rows, strict=True):
        score = scorer.score(as_text(several[0], "w7"), as_text(h))[f"rouge{n}"]
        assert (own[0] / own[1].clamp(min=1)).item() == pytest.approx(score.precision, abs=1e-6)
        assert rouge.recall(own).item() == pytest.approx(score.recall, abs=1e-6)
        assert rouge.f1(own).item() == pytest.approx(score.fmeasure, abs=1e-6)


@pytest.mark.parametrize(("metric", "name"), [(ROUGE1_F, "rouge1"), (ROUGE2_F, "rouge2")])
@settings(deadline=None, max_examples=200)
@given(rows=ROWS)
def test_f1_of_several_references_is_rouge_score_s(metric, name, rows):
    scorer = RougeScorer([name], use_stemmer=False)
    metric = unk_as_word(metric)
    scores = metric.corpus(metric.statistics(Rollout(*tensors(rows))).unsqueeze(1))  # each a corpus of one
    expected = [scorer.score_multi([as_text(r) for r in several], as_text(h))[name].fmeasure for h, several in rows]
    torch.testing.assert_close(scores, 100 * torch.tensor(expected, dtype=torch.float32), rtol=1e-6, atol=1e-4)


def test_the_best_reference_depends_on_what_is_scored():
    words = torch.tensor([[4, 5, 6, 7, EOS]])
    references = torch.tensor([[[4, EOS, PAD, PAD, PAD], [4, 5, 6, 8, EOS], [PAD] * 5]])
    assert rouge.statistics(words, references, 1, rouge.recall).tolist() == [[1, 4, 1]]  # all of it, but of one word
    assert rouge.statistics(words, references, 1, rouge.f1).tolist() == [[3, 4, 4]]


def test_a_missing_reference_is_never_the_best():
    words = torch.tensor([[4, 5, EOS]])
    references = torch.tensor([[[PAD] * 3, [6, 7, EOS]]])
    assert rouge.statistics(words, references, 1, rouge.f1).tolist() == [[0, 2, 2]]
