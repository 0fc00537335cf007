import itertools
import math
from statistics import mean, pstdev, pvariance

import pytest
import torch

from seqmixer.algorithms.diagnostics import diagnostics, distinct, hashed, over, symptoms
from seqmixer.types import EOS, PAD, Batch

T = 4
# Ended early; cut at T; nothing of its own, for the given words ended; ended at T.
WORDS = torch.tensor([[3, 4, EOS, PAD], [3, 4, 5, 5], [EOS, PAD, PAD, PAD], [5, 3, 4, EOS]])
TARGET = torch.tensor([[3, EOS, PAD, PAD], [5, 4, 3, EOS], [EOS, PAD, PAD, PAD], [4, 4, 5, 3]])
BATCH = Batch(TARGET[:, :0], TARGET, TARGET.unsqueeze(1))
FREE = (WORDS != PAD) & (torch.arange(T) >= 1)  # s = 1
STEPS = [(0, 1), (0, 2), (1, 1), (1, 2), (1, 3), (3, 1), (3, 2), (3, 3)]  # where FREE is true
R = torch.tensor([0.2, 0.8, 100.0, 0.5])


def divided(tallied):
    total, count = tallied.tolist()
    return total / count


@pytest.fixture
def log_p():
    return -torch.rand(4, T, requires_grad=True)


@pytest.fixture
def r_bar():
    return torch.randn(4, T, requires_grad=True)


def test_measures_are_means_over_what_the_model_wrote(log_p, r_bar):
    got = diagnostics(log_p, WORDS, FREE, R, r_bar, BATCH)

    own = [0.2, 0.8, 0.5]  # the reward of a sentence that was given whole does not count
    advantage = [(R[b] - r_bar[b, t]).item() for b, t in STEPS]
    paid = [R[b].item() for b, _ in STEPS]
    expected = {
        "reward": mean(own),
        "reward_spread": pstdev(own),
        "advantage": mean(advantage),
        "explained": 1 - mean([a * a for a in advantage]) / pvariance(paid),
        "entropy": mean([-log_p[b, t].item() for b, t in STEPS]),
        "length_ratio": (3 + 4 + 1 + 4) / (2 + 4 + 1 + 4),
        "cut": 1 / 3,
        "own_words": len(STEPS) / (3 + 4 + 1 + 4),
        "distinct": 1,
    }
    assert [(b, t) for b in range(4) for t in range(T) if FREE[b, t]] == STEPS
    assert {name: divided(value) for name, value in got.items()} == pytest.approx(expected, rel=1e-5)


def test_the_entropy_of_sampled_words_is_that_of_the_model_on_average():
    p = torch.tensor([0.5, 0.3, 0.2])
    words = torch.multinomial(p, 40_000, replacement=True).view(-1, T)
    everywhere = torch.ones_like(words, dtype=torch.bool)
    batch = Batch(words[:, :0], words + 4, words.unsqueeze(1))

    got = diagnostics(p.log()[words], words + 4, everywhere, torch.zeros(len(words)), torch.zeros_like(words), batch)

    assert divided(got["entropy"]) == pytest.approx(-(p * p.log()).sum().item(), rel=0.01)


def test_measures_are_tallies_without_gradient(log_p, r_bar):
    for value in diagnostics(log_p, WORDS, FREE, R, r_bar, BATCH).values():
        assert value.shape == (2,)
        assert not value.requires_grad


def test_a_batch_that_was_given_whole_has_nothing_to_count(log_p, r_bar):
    got = diagnostics(log_p, TARGET, torch.zeros_like(FREE), R, r_bar, BATCH)

    assert divided(got.pop("length_ratio")) == 1
    assert divided(got.pop("own_words")) == 0
    assert [value.tolist() for value in got.values()] == [[0, 0]] * 7


# By words, 0.2 is there twice, 0.8 and 0.5 three times: their mean is 4.3 / 8, and their squares about it sum to 0.439.
@pytest.mark.parametrize(("expected", "share"), [(R, 1), (torch.full((4,), 4.3 / 8), 0), (1.1 - R, 1 - 1.76 / 0.43875)])
def test_a_baseline_explains_all_of_the_variance_or_none_of_it_or_adds_to_it(log_p, expected, share):
    got = diagnostics(log_p, WORDS, FREE, R, expected.unsqueeze(-1).expand(4, T), BATCH)

    assert divided(got["explained"]) == pytest.approx(share, abs=1e-4)


def test_equal_rewards_have_no_spread(log_p, r_bar):
    assert diagnostics(log_p, WORDS, FREE, torch.full((4,), 0.5), r_bar, BATCH)["reward_spread"].tolist() == [0, 3]


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_distinct_is_the_share_of_pairs_of_own_sentences_that_differ(size):
    words = torch.randint(4, 6, (size, 2))
    own = torch.rand(size) < 0.8
    mine = [tuple(row) for row, is_own in zip(words.tolist(), own.tolist(), strict=True) if is_own]
    pairs = list(itertools.combinations(mine, 2))

    assert distinct(words, own).tolist() == [sum(a != b for a, b in pairs), len(pairs)]


@pytest.mark.parametrize("samples", [2, 3])
def test_sentences_for_one_source_are_no_pair(samples):
    words, own = torch.randint(4, 6, (6, 2)), torch.ones(6, dtype=torch.bool)
    groups = [words[i : i + samples].tolist() for i in range(0, 6, samples)]
    pairs = [(a, b) for one, other in itertools.combinations(groups, 2) for a in one for b in other]

    assert distinct(words, own, samples).tolist() == [sum(a != b for a, b in pairs), len(pairs)]


def test_a_model_that_writes_the_same_for_every_source_is_not_distinct_at_all():
    assert distinct(WORDS[:1].expand(5, -1), torch.ones(5, dtype=torch.bool)).tolist() == [0, 10]


HEALTHY = {"own_words": 1.0, "reward_spread": 0.2, "entropy": 0.7, "cut": 0.1, "length_ratio": 1.0, "distinct": 0.99}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, []),
        ({"reward_spread": 0.0}, ["every sentence has the same reward, so there is nothing to learn from: look at the reward"]),
        ({"explained": 0.99}, ["99 % of what rewards differ by is expected, so there is little to learn from: are the sentences for one source all alike? Lower training.rl_lr, or stop earlier"]),
        ({"entropy": 0.01}, ["the model no longer explores (entropy 0.010): lower training.rl_lr, or stop earlier"]),
        ({"distinct": 0.01}, ["99 % of the pairs of sentences are equal, whatever the source: begin again with a lower training.rl_lr, or set algorithm.kl"]),
        ({"cut": 0.8}, ["80 % of the sentences do not end before T: does the reward have a length penalty? Add one, such as length"]),
        ({"length_ratio": 1.9}, ["sentences have 1.90 times the words of their references: what does the reward favour?"]),
        ({"length_ratio": 0.3}, ["sentences have 0.30 times the words of their references: what does the reward favour?"]),
        ({"entropy": 0.0, "own_words": 0.2}, []),
    ],
)  # fmt: skip
def test_what_looks_ill_is_said_in_plain_words(change, said):
    assert symptoms({**HEALTHY, **change}) == said
    assert symptoms({"xent": 1.0}) == []


def test_a_tally_looks_only_where_the_mask_is_true():
    values = torch.tensor([1.0, math.nan, 4.0, math.inf])

    assert over(values, torch.tensor([True, False, True, False])).tolist() == [5, 2]
    assert over(values, torch.zeros(4, dtype=torch.bool)).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("rows", "samples", "seed"), [(12, 1, 0), (12, 3, 1), (1, 1, 2), (40, 4, 3), (40, 40, 4), (2, 1, 5)]
)
def test_distinct_counts_the_pairs_that_differ(rows, samples, seed):
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(4, 6, (rows, 2), generator=generator)  # many are equal
    own = torch.rand(rows, generator=generator) < 0.8
    pairs = [
        (i, j) for i, j in itertools.combinations(range(rows), 2) if own[i] and own[j] and i // samples != j // samples
    ]
    differing = [words[i].tolist() != words[j].tolist() for i, j in pairs]
    assert distinct(words, own, samples).tolist() == [sum(differing), len(pairs)]


def test_distinct_takes_no_memory_for_pairs():
    rows = 100_000  # a byte a pair would be 10 GB
    words = torch.arange(rows).unsqueeze(-1).remainder(1000).expand(rows, 10)
    different, pairs = distinct(words, torch.ones(rows, dtype=torch.bool)).double().tolist()
    assert pairs == pytest.approx(math.comb(rows, 2))
    assert different == pytest.approx(math.comb(rows, 2) - 1000 * math.comb(rows // 1000, 2))


def test_hashes_of_different_sentences_differ():
    words = torch.cartesian_prod(*[torch.arange(20)] * 4)  # (160,000, 4)
    assert len(hashed(words).unique()) == len(words)
    assert len(hashed(torch.cat([words, words.flip(-1)])).unique()) == len(words)
