import math
import random
from collections import Counter

import pytest
import torch
from sacrebleu import corpus_bleu

from seqmixer.rewards import BLEU, bleu, rouge2_recall, sentence_bleu
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


def grams(sentence, n, s):
    counts = Counter()
    for i in range(len(sentence) - n + 1):
        if any(position >= s for position in range(i, i + n)):
            counts[tuple(sentence[i : i + n])] += 1
    return counts


def row(sentence, length):
    return ([*sentence, EOS] + [PAD] * length)[:length]


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
        score = BLEU.corpus(BLEU.statistics(words, others))
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
    score = BLEU.corpus(BLEU.statistics(words, others)).item()
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


@pytest.mark.parametrize("reward", [sentence_bleu, rouge2_recall])
@pytest.mark.parametrize("start", [0, 3])
def test_rewards_ask_the_device_no_question(reward, start):
    """The meta device holds no values: an `.item()`, or a tensor made elsewhere, raises there."""
    words = torch.ones(4, 6, dtype=torch.long, device="meta")
    references = torch.ones(4, 3, 5, dtype=torch.long, device="meta")
    result = reward(Rollout(words, references, start))
    assert result.shape == (4,)
    assert result.device.type == "meta"


def test_the_signature_says_how_the_score_is_made():
    assert (BLEU.name, BLEU.signature) == ("bleu", "bleu|order:4|smooth:none|unk:never-matches|refs:closest")
