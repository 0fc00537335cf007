"""Algorithms that compare the candidates of a source: enumeration, copies, the reference among them, XENT's share."""

import itertools
from copy import deepcopy

import pytest
import torch
from torch import nn

from seqmixer.algorithms import (
    ALGORITHMS,
    BestOfN,
    Dpo,
    ExpectedRisk,
    GroupLoss,
    GroupSettings,
    LeaveOneOut,
    Parts,
    Prefix,
    Reinforce,
    SequenceNll,
    Xent,
)
from seqmixer.decoding import beam_search, shift
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
OWN = {"alpha": 0.7, "margin": 2.0, "rank_margin": 0.8, "beta": 0.7}
KINDS = {name: kind for name, kind in ALGORITHMS.items() if issubclass(kind, GroupLoss)}


@pytest.fixture
def model():
    made = Recurrent(LSTMCell, AttentiveEncoder(9, H, positions=6, window=3), V, H)
    for parameter in made.parameters():
        nn.init.normal_(parameter)
    return made.double()


def made(name, model, reward=lambda rollout: R, words=SIX, samples=3, **rest):
    """An algorithm of KINDS; one that compares with a frozen copy has that of another model."""
    kind = KINDS[name]
    own = {setting: value for setting, value in OWN.items() if setting in kind.Settings.model_fields}
    algorithm = kind(reward, generate=writing(words), samples=samples, **own, **rest)
    if algorithm.holds_reference:
        torch.manual_seed(5)
        frozen = deepcopy(model)
        for parameter in frozen.parameters():
            nn.init.normal_(parameter)
        algorithm.set_reference(frozen)
    return algorithm


def written(model, **settings):
    """The words of a risk's candidates, and its loss."""
    seen = []

    def reward(rollout):
        seen.append(rollout.words)
        return torch.rand(len(rollout.words), dtype=torch.double)

    settings = {"alpha": 1.0, "samples": 3, **settings}
    loss = ExpectedRisk(reward, **settings)(model, BATCH, 0)
    return seen[0], loss


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
    r = R[[0, 1, 0, 2, 1, 3, 4, 4, 4, 5]]
    five = made(name, model, lambda rollout: r, twice, samples=5, length_penalty=length_penalty)
    once = made(name, model, length_penalty=length_penalty)
    copies, loss = five(model, BATCH, 0), once(model, BATCH, 0)
    same(gradients(copies.value, model), gradients(loss.value, model))
    assert (copies.metrics["copies"].tolist(), loss.metrics["copies"].tolist()) == ([4, 10], [0, 6])


@pytest.mark.parametrize("name", KINDS)
def test_the_reference_takes_the_place_of_the_last_candidate(model, name):
    seen = []
    made(name, model, lambda rollout: seen.append(rollout.words) or R, with_reference=True)(model, BATCH, 0)
    assert seen[0].tolist() == [*SIX[:2].tolist(), TARGET[0].tolist(), *SIX[3:5].tolist(), TARGET[1].tolist()]


@pytest.mark.parametrize("name", KINDS)
def test_the_share_of_xent_adds_to_the_gradient(model, name):
    def of(weight):
        return gradients(made(name, model, token_weight=weight)(model, BATCH, 0).value, model)

    xent = gradients(Xent()(model, BATCH, 0).value, model)
    same(of(0.3), [g + 0.3 * x for g, x in zip(of(0.0), xent, strict=True)])


def test_scores_are_divided_by_the_words_that_the_model_wrote(model):
    """The risk with alpha = 1, by its definition."""
    risk = ExpectedRisk(lambda rollout: R, alpha=1.0, generate=writing(SIX), samples=3, length_penalty=1.0)
    s = (log_p(model, SIX).sum(-1) / (SIX != PAD).sum(-1)).view(2, 3)
    same(gradients(risk(model, BATCH, 0).value, model), gradients(-(s.softmax(-1) * R.view(2, 3)).sum() / 2, model))


@pytest.mark.parametrize("name", KINDS)
def test_nothing_is_learnt_from_equal_rewards_or_from_copies_of_one_sentence(model, name):
    """All of a source's rewards, or all of its sentences, are equal; also where nothing is the model's own word."""
    for r, words in ((torch.full_like(R, 0.4), SIX), (R, SIX[[0, 0, 0, 3, 3, 3]]), (R, torch.full_like(SIX, PAD))):
        for g in gradients(made(name, model, lambda rollout, r=r: r, words)(model, BATCH, 0).value, model):
            assert g.abs().max() < 1e-12


def test_dpo_has_the_gradient_of_its_definition(model):
    """Equation 7 of the paper, divided by beta, from the probabilities of both models."""
    dpo = made("dpo", model)
    log_ratio = (log_p(model, SIX) - log_p(dpo.reference, SIX)).sum(-1).view(2, 3)
    pairs = log_ratio[0, 1] - log_ratio[0, 0], log_ratio[1, 0] - log_ratio[1, 1]  # R: the best and the worst
    expected = sum(torch.log(1 + torch.exp(-0.7 * pair)) / 0.7 for pair in pairs) / 2
    same(gradients(dpo(model, BATCH, 0).value, model), gradients(expected, model))


def test_dpo_whose_copy_is_the_model_begins_as_a_policy_gradient_of_the_best_against_the_worst(model):
    dpo = Dpo(lambda rollout: R, generate=writing(SIX), samples=3, beta=0.3)
    dpo.set_reference(model)
    best_and_worst = SIX[[1, 0, 3, 4]]
    other = Reinforce(lambda rollout: torch.tensor([1.0, 0, 1, 0]), LeaveOneOut(), writing(best_and_worst), samples=2)
    same(gradients(dpo(model, BATCH, 0).value, model), gradients(other(model, BATCH, 0).value, model))


def test_the_best_of_n_is_xent_on_the_best_as_if_it_were_the_reference(model):
    best = SIX[[1, 3]]
    same(
        gradients(made("best-of-n", model)(model, BATCH, 0).value, model),
        gradients(Xent()(model, Batch(SOURCE, best, best.unsqueeze(1)), 0).value, model),
    )


def test_the_kl_term_decides_which_candidate_is_best(model):
    """A reward of 1 for the second sentence is not worth it once a nat of drift costs more."""
    frozen = deepcopy(model)
    nn.init.normal_(frozen.M_o.weight)
    drift = (log_p(model, SIX) - log_p(frozen, SIX)).sum(-1).view(2, 3)
    kept = BestOfN(lambda rollout: R, generate=writing(SIX), samples=3, kl=100.0)
    kept.set_reference(frozen)
    best = SIX.view(2, 3, T)[torch.arange(2), (R.view(2, 3) - 100 * drift).argmax(-1)]
    assert best.tolist() != SIX[[1, 3]].tolist()
    same(
        gradients(kept(model, BATCH, 0).value, model),
        gradients(Xent()(model, Batch(SOURCE, best, best.unsqueeze(1)), 0).value, model),
    )


def test_sequence_nll_among_all_sentences_is_xent_on_the_best(model):
    """Then the candidates' probabilities sum to 1."""
    every, r = torch.cat([EVERY, EVERY]), torch.rand(2 * len(EVERY), dtype=torch.double)
    nll = SequenceNll(lambda rollout: r, generate=writing(every), samples=len(EVERY))
    best = EVERY[r.view(2, -1).argmax(-1)]
    same(
        gradients(nll(model, BATCH, 0).value, model),
        gradients(Xent()(model, Batch(SOURCE, best, best.unsqueeze(1)), 0).value, model),
    )


@pytest.mark.parametrize("k", [3, 5])
def test_the_candidates_of_a_beam_are_those_of_beam_search(model, k):
    words, _ = written(model, candidates="beam", samples=k)
    assert torch.equal(words.view(2, k, T), beam_search(model, SOURCE, T, k).words)


@pytest.mark.parametrize("candidates", ["beam", "distinct"])
def test_where_there_are_fewer_sentences_than_candidates_the_others_are_copies(model, candidates):
    """All 13 that can be written, and two copies of the first: the exact expected reward."""
    words, loss = written(model, candidates=candidates, samples=len(EVERY) + 2)
    for rows in words.view(2, -1, T).tolist():
        assert sorted(rows[:13]) == sorted(EVERY.tolist())
        assert rows[13:] == [rows[0]] * 2
    assert loss.metrics["copies"].tolist() == [4, 30]


def test_candidates_drawn_without_replacement_all_differ(model):
    torch.manual_seed(2)
    drawn = [written(model, candidates="distinct") for _ in range(20)]
    for words, loss in drawn:
        assert loss.metrics["copies"].tolist() == [0, 6]
        assert all(len(set(map(tuple, rows))) == 3 for rows in words.view(2, 3, T).tolist())
    assert len({str(words.tolist()) for words, _ in drawn}) > 10


@pytest.mark.parametrize("candidates", ["sample", "beam", "distinct"])
def test_candidates_begin_with_the_forced_words_and_only_the_rest_is_scored(model, candidates):
    """MIXER's prefix, here s = 1 of T = 2 words: all 4 sentences that go on, and the exact expected reward of them."""
    torch.manual_seed(1)
    prefix = Prefix(T, [1], xent_weight=0.0)
    r = torch.rand(V, dtype=torch.double)  # by the second word
    risk = ExpectedRisk(
        lambda rollout: r[rollout.words[:, 1]], alpha=1.0, samples=40 if candidates == "sample" else 4,
        candidates=candidates, prefix=prefix,
    )  # fmt: skip
    loss = risk(model, BATCH, 0)
    after = torch.stack([torch.stack([TARGET[:, 0], torch.full((2,), v)], 1) for v in (EOS, *WORDS)], 1)  # (B, 4, T)
    p = log_p(model, after.flatten(0, 1))[:, 1].exp().view(2, 4)
    assert p.sum().item() == pytest.approx(2)
    same(gradients(loss.value, model), gradients(-(p * r[after[..., 1]]).sum() / 2, model))


def test_a_loss_of_ones_own_is_a_function_and_its_settings(model):
    """As docs/algorithms/own.md says: here the worst candidate is made less likely."""

    def worst(s, r, mask, share):
        return share * s.gather(-1, r.masked_fill(~mask, torch.inf).argmin(-1, keepdim=True)).squeeze(-1)

    class Settings(GroupSettings):
        share: float = 0.5

    class Worst(GroupLoss):
        label, compare = "worst", staticmethod(worst)

    Worst.Settings = Settings
    made = Worst.of(
        Settings(name="own:Worst", samples=3), Parts(lambda rollout: R, H, T, V, epochs=1, generate=writing(SIX))
    )
    expected = 0.5 * log_p(model, SIX[[0, 4]]).sum() / 2
    same(gradients(made(model, BATCH, 0).value, model), gradients(expected, model))
