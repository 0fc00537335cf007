"""Algorithms that compare the candidates of a source: enumeration, copies, the reference among them, XENT's share."""

import itertools

import pytest
import torch
from torch import nn

from seqmixer.algorithms import ExpectedRisk, LeaveOneOut, Reinforce, Xent
from seqmixer.decoding import shift
from seqmixer.losses import log_prob
from seqmixer.models import AttentiveEncoder, LSTMCell, Recurrent
from seqmixer.types import BOS, EOS, PAD, Batch

V, H, T = 6, 3, 2
SOURCE = torch.tensor([[4, 5, 6], [8, 3, PAD]])
TARGET = torch.tensor([[3, EOS], [5, 4]])
BATCH = Batch(SOURCE, TARGET, TARGET.unsqueeze(1), meta=[{"source": "a"}, {"source": "b"}])
WORDS = [v for v in range(V) if v not in (PAD, BOS, EOS)]
EVERY = torch.tensor([[EOS, PAD], *([word, EOS] for word in WORDS), *itertools.product(WORDS, repeat=2)])  # (n, T)
SIX = torch.tensor([[3, EOS], [3, 5], [4, 3], [5, EOS], [5, 5], [EOS, PAD]])  # three for each source
R = torch.tensor([0.2, 0.9, 0.4, 0.7, 0.1, 0.3], dtype=torch.double)
KINDS = {
    "mrt": lambda reward, **rest: ExpectedRisk(reward, alpha=0.7, **rest),
}


@pytest.fixture
def model():
    made = Recurrent(LSTMCell, AttentiveEncoder(9, H, positions=6, window=3), V, H)
    for parameter in made.parameters():
        nn.init.normal_(parameter)
    return made.double()


def writing(words):
    return lambda model, source, given, keep, choose: torch.where(keep, given, words)


def log_p(model, words, source=SOURCE):
    """(Bk, T)"""
    k = len(words) // len(source)
    o = model.scores(model.unroll(shift(words), model.encode(source.repeat_interleave(k, 0))))
    return log_prob(o, words) * (words != PAD)


def gradients(loss, model):
    return torch.autograd.grad(loss, list(model.parameters()))


def same(some, others):
    for a, b in zip(some, others, strict=True):
        torch.testing.assert_close(a, b)


def test_the_risk_among_all_sentences_has_the_gradient_of_the_expected_reward(model):
    """With alpha = 1, for every source of the batch."""
    every, r = torch.cat([EVERY, EVERY]), torch.rand(2 * len(EVERY), dtype=torch.double)
    p = log_p(model, every).sum(-1).exp()
    assert p.sum().item() == pytest.approx(2)
    risk = ExpectedRisk(lambda rollout: r, alpha=1.0, generate=writing(every), samples=len(EVERY))
    same(gradients(risk(model, BATCH, 0).value, model), gradients(-(p * r).sum() / 2, model))


def test_the_risk_at_alpha_0_is_the_policy_gradient_against_the_mean(model):
    """Which holds the sentence's own reward: (k - 1) / k of what leave-one-out has."""
    risk = ExpectedRisk(lambda rollout: R, alpha=1e-7, generate=writing(SIX), samples=3)
    other = Reinforce(lambda rollout: R, LeaveOneOut(), writing(SIX), samples=3)
    same(gradients(risk(model, BATCH, 0).value, model), gradients(other(model, BATCH, 0).value * 2 / 3, model))


@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
@pytest.mark.parametrize("name", KINDS)
def test_equal_sentences_are_one_candidate(model, name, length_penalty):
    twice = SIX[[0, 1, 0, 2, 1, 3, 4, 4, 4, 5]]
    made = KINDS[name](
        lambda rollout: R[[0, 1, 0, 2, 1, 3, 4, 4, 4, 5]],
        generate=writing(twice), samples=5, length_penalty=length_penalty,
    )  # fmt: skip
    once = KINDS[name](lambda rollout: R, generate=writing(SIX), samples=3, length_penalty=length_penalty)
    copies, loss = made(model, BATCH, 0), once(model, BATCH, 0)
    same(gradients(copies.value, model), gradients(loss.value, model))
    assert (copies.metrics["copies"].tolist(), loss.metrics["copies"].tolist()) == ([4, 10], [0, 6])


@pytest.mark.parametrize("name", KINDS)
def test_the_reference_takes_the_place_of_the_last_candidate(model, name):
    seen = []
    made = KINDS[name](
        lambda rollout: seen.append(rollout.words) or R, generate=writing(SIX), samples=3, with_reference=True
    )
    made(model, BATCH, 0)
    assert seen[0].tolist() == [*SIX[:2].tolist(), TARGET[0].tolist(), *SIX[3:5].tolist(), TARGET[1].tolist()]


@pytest.mark.parametrize("name", KINDS)
def test_the_share_of_xent_adds_to_the_gradient(model, name):
    def of(weight):
        made = KINDS[name](lambda rollout: R, generate=writing(SIX), samples=3, token_weight=weight)
        return gradients(made(model, BATCH, 0).value, model)

    xent = gradients(Xent()(model, BATCH, 0).value, model)
    same(of(0.3), [g + 0.3 * x for g, x in zip(of(0.0), xent, strict=True)])


def test_scores_are_divided_by_the_words_that_the_model_wrote(model):
    """The risk with alpha = 1, by its definition."""
    made = ExpectedRisk(lambda rollout: R, alpha=1.0, generate=writing(SIX), samples=3, length_penalty=1.0)
    s = (log_p(model, SIX).sum(-1) / (SIX != PAD).sum(-1)).view(2, 3)
    same(gradients(made(model, BATCH, 0).value, model), gradients(-(s.softmax(-1) * R.view(2, 3)).sum() / 2, model))
