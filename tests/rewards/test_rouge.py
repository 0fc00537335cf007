import random
from collections import Counter
from functools import partial

import pytest
import torch

from seqmixer.rewards import ROUGE2, rouge, rouge2_recall
from seqmixer.types import EOS, PAD, UNK, Rollout


def released(hypothesis, reference, n, s):
    """The rule of the authors' code for one pair without EOS."""
    if min(len(hypothesis), len(reference)) - s < n:
        return 0.0
    own, other = grams(hypothesis, n, s), grams(reference, n, s)
    other = {gram: count for gram, count in other.items() if UNK not in gram}
    matches = sum(min(own[gram], count) for gram, count in other.items())
    return matches / sum(other.values()) if other else 0.0


def grams(sentence, n, s):
    counts = Counter()
    for i in range(len(sentence) - n + 1):
        if any(position >= s for position in range(i, i + n)):
            counts[tuple(sentence[i : i + n])] += 1
    return counts


def row(sentence, length):
    return ([*sentence, EOS] + [PAD] * length)[:length]


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
    one = rouge.recall(Rollout(words, others[:, :1], start), n)
    assert one.dtype == torch.float32
    torch.testing.assert_close(one, torch.tensor(expected[0]))
    best = torch.tensor(expected).amax(0)
    torch.testing.assert_close(rouge.recall(Rollout(words, others, start), n), best)


def test_the_paper_s_reward_is_of_order_two():
    rollout = Rollout(torch.tensor([[4, 5, 6, 5, EOS]]), torch.tensor([[[5, 6, 4, 5, 5, EOS]]]), start=1)
    assert rouge2_recall(rollout).tolist() == rouge.recall(rollout, 2).tolist() == [0.5]


def test_a_row_is_that_of_the_best_reference():
    words = torch.tensor([[4, 5, 6, EOS, PAD]])
    references = torch.tensor([[[4, 5, 7, 7, EOS], [5, 6, UNK, 7, 7], [PAD] * 5, [6, 6, EOS, PAD, PAD]]])
    assert rouge.statistics(words, references, 2).tolist() == [[1, 2, 2]]  # (5 6) of (5 6), (7 7); not a third


def test_corpus_score_is_the_mean_of_the_sentences():
    draw = random.Random(1)
    words = torch.tensor([row(h, 9) for h in sentences(draw, 40, 9)])
    references = [sentences(draw, 40, 11) for _ in range(2)]
    others = torch.tensor([[row(r, 12) for r in several] for several in zip(*references, strict=True)])
    rows = ROUGE2.statistics(words, others)
    assert rows.shape == (40, 3)
    assert ROUGE2.corpus(rows) > 0
    torch.testing.assert_close(ROUGE2.corpus(rows), 100 * rouge2_recall(Rollout(words, others)).mean())
    torch.testing.assert_close(ROUGE2.corpus(rows.unsqueeze(1)) / 100, rouge2_recall(Rollout(words, others)))


def test_a_reference_without_a_known_gram_pays_nothing():
    words = torch.tensor([[UNK, UNK, EOS]])
    reward = partial(rouge.recall, n=2)
    assert reward(Rollout(words, words.unsqueeze(1))).tolist() == [0.0]
    assert reward(Rollout(words, torch.full((1, 1, 3), PAD))).tolist() == [0.0]


def test_the_signature_says_how_the_score_is_made():
    signature = "rouge|order:2|recall|mean:sentences|unk:left-out|refs:best"
    assert (ROUGE2.name, ROUGE2.signature) == ("rouge2", signature)
