"""Policy gradients: which are limit cases of which, and what each is on average, by enumeration."""

import itertools

import pytest
import torch
from torch import nn

from seqmixer.algorithms import (
    ActorCritic,
    Critic,
    GreedyReward,
    GroupMean,
    Grpo,
    LeaveOneOut,
    LinearBaseline,
    Parts,
    Ppo,
    Reinforce,
    Rloo,
    Scst,
)
from seqmixer.build import build_algorithm
from seqmixer.config import Config
from seqmixer.decoding import generate, greedy, sample, shift
from seqmixer.errors import ConfigError
from seqmixer.losses import log_prob
from seqmixer.models import AttentiveEncoder, LSTMCell, Recurrent
from seqmixer.types import EOS, PAD, Batch

V, H, T, BETA = 5, 3, 2, 0.3
SOURCE = torch.tensor([[4, 5, 6], [8, 3, PAD]])
TARGET = torch.tensor([[3, EOS], [4, 4]])
BATCH = Batch(SOURCE, TARGET, TARGET.unsqueeze(1), meta=[{"source": "a"}, {"source": "b"}])
ONE = Batch(SOURCE[:1], TARGET[:1], TARGET[:1].unsqueeze(1))
EVERY = torch.tensor([[EOS, PAD], [3, EOS], [4, EOS], *([a, b] for a in (3, 4) for b in (3, 4))])  # (n, T)
SIX = torch.tensor([[3, EOS], [3, 4], [4, 3], [4, EOS], [4, 4], [EOS, PAD]])  # three for each source
R = torch.tensor([0.2, 0.9, 0.4, 0.7, 0.1, 0.3], dtype=torch.double)


def translator():
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


def gradients(loss, *modules):
    return torch.autograd.grad(loss, [p for module in modules for p in module.parameters()])


def same(some, others, times=1.0):
    for a, b in zip(some, others, strict=True):
        torch.testing.assert_close(a, times * b)


def of(kind, *modules, model, batch=BATCH, **settings):
    """The gradients of an algorithm that samples SIX."""
    made = kind(lambda rollout: R, generate=writing(SIX), samples=3, **settings)
    return gradients(made(model, batch, 0).value, model, *modules)


def linear():
    made = LinearBaseline(H).double()
    nn.init.normal_(made.weight, generator=torch.Generator().manual_seed(2))
    return made


def critic():
    with torch.random.fork_rng():
        torch.manual_seed(2)
        made = Critic(V, 4, T).double()
        nn.init.normal_(made.weight)
    return made


# What is a limit case of what


def test_rloo_is_reinforce_with_the_mean_of_the_others():
    model = translator()
    same(of(Rloo, model=model, baseline=LeaveOneOut()), of(Reinforce, model=model, baseline=LeaveOneOut()))


def test_dr_grpo_with_one_update_is_two_thirds_of_rloo_with_three_samples():
    model = translator()
    dr = of(Grpo, model=model, baseline=GroupMean(), scale=False, by_length=False)
    same(dr, of(Rloo, model=model, baseline=LeaveOneOut()), times=2 / 3)


def test_grpo_divides_by_the_spread_of_the_rewards_and_by_the_length():
    model, r = translator(), R.view(2, 3)
    a = ((r - r.mean(1, keepdim=True)) / r.std(1, keepdim=True)).flatten()
    length = (SIX != PAD).sum(-1)
    expected = -(a * log_p(model, SIX).sum(-1) / length).sum() / 6
    same(of(Grpo, model=model, baseline=GroupMean()), gradients(expected, model))


@pytest.mark.parametrize("reward", [0.1, 0.0, -3.3, 1e-20])
def test_equal_rewards_teach_grpo_nothing(reward):
    """Also where they differ by rounding."""
    model, r = translator().float(), torch.full((6,), reward)
    r[::2] = r[::2].nextafter(torch.tensor(9.0)) if abs(reward) > 1e-9 else reward
    made = Grpo(lambda rollout: r, GroupMean(), generate=writing(SIX), samples=3)
    for gradient in gradients(made(model, BATCH, 0).value, model):
        assert (gradient == 0).all()


@pytest.mark.parametrize("samples", [2, 3])
def test_ppo_with_one_update_is_reinforce(samples):
    model, baseline = translator(), linear()
    words, r = SIX[: 2 * samples], R[: 2 * samples]
    one, other = (
        gradients(
            kind(lambda rollout: r, baseline, generate=writing(words), samples=samples, **settings)(
                model, BATCH, 0
            ).value,
            model,
            baseline,
        )
        for kind, settings in ((Ppo, {"updates": 1}), (Reinforce, {}))
    )
    same(one, other)


@pytest.mark.parametrize("kl", [0.0, BETA])
@pytest.mark.parametrize("updates", [1, 4])
def test_the_first_update_starts_at_ratios_of_1(updates, kl):
    """So its gradient is that of REINFORCE, whatever the clip range, and no word is clipped."""
    model, held, baseline = translator(), translator(), linear()

    def made(kind, **settings):
        algorithm = kind(lambda rollout: R, baseline, generate=writing(SIX), samples=3, kl=kl, **settings)
        algorithm.set_reference(held)
        return algorithm(model, BATCH, 0)

    ppo = made(Ppo, updates=updates, clip=1e-9)
    same(gradients(ppo.value, model), gradients(made(Reinforce).value, model))
    assert ppo.metrics.get("clipped", torch.zeros(2))[0] == 0


def test_later_updates_are_the_clipped_ratio_to_the_model_that_sampled():
    """With the advantages of the candidates as they were, and the KL term of the model that sampled."""
    model, held, baseline, scheduled = translator(), translator(), linear(), torch.tensor(0.0)
    ppo = Ppo(
        lambda rollout: R, baseline, generate=writing(SIX), samples=3, updates=2, clip=0.1, clip_high=0.3, kl=BETA
    )
    ppo.set_reference(held)
    candidates = ppo.collect(model, BATCH, ppo.stage(0), scheduled)
    before = log_p(model, SIX).detach()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)

    loss = ppo.loss(model, BATCH, candidates, ppo.stage(0), scheduled)

    mask = SIX != PAD
    h = model.unroll(shift(SIX), model.encode(SOURCE.repeat_interleave(3, 0)))
    drift = (before - log_p(held, SIX).detach()).flip(-1).cumsum(-1).flip(-1)
    a = (R.unsqueeze(-1) - BETA * drift - baseline(h)).detach()
    rho = (log_p(model, SIX) - before).exp()
    each = -torch.minimum(rho * a, rho.clamp(0.9, 1.3) * a) * mask
    same(gradients(loss.value, model), gradients(each.sum() / 6, model))
    outside = torch.where(a > 0, rho > 1.3, rho < 0.9) & mask
    assert loss.metrics["clipped"].tolist() == [outside.sum(), mask.sum()]
    assert 0 < outside.sum() < mask.sum()


@pytest.mark.parametrize("clip", [0.5, 1e-3])
def test_gspo_is_grpo_for_sentences_of_one_word(clip):
    words = torch.tensor([[EOS], [3], [4], [4], [3], [EOS]])
    batch = Batch(SOURCE, TARGET[:, :1], TARGET[:, :1].unsqueeze(1))

    def second(ratio):
        torch.manual_seed(1)
        model = translator()
        made = Grpo(
            lambda rollout: R, GroupMean(), generate=writing(words), samples=3, updates=2, clip=clip, ratio=ratio
        )
        candidates = made.collect(model, batch, made.stage(0), torch.tensor(0.0))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.05 * torch.randn_like(parameter)
        loss = made.loss(model, batch, candidates, made.stage(0), torch.tensor(0.0))
        return gradients(loss.value, model), loss.metrics["clipped"].tolist()

    (word, some), (sentence, others) = second("word"), second("sentence")
    same(word, sentence)
    assert some == others
    assert (some[0] > 0) == (clip < 0.5)


# SCST


def test_the_samples_of_a_source_are_compared_with_its_greedy_sentence():
    model = translator()
    words = torch.cat([SIX.view(2, 3, T), torch.tensor([[[3, 3]], [[4, EOS]]])], 1).flatten(0, 1)  # (2 * 4, T)
    r = torch.cat([R.view(2, 3), torch.tensor([[0.6], [0.25]]).double()], 1)  # (2, 4)
    made = Scst(lambda rollout: r.flatten(), GreedyReward(), generate=writing(words), samples=3)

    loss = made(model, BATCH, 0)

    a = (r[:, :3] - r[:, 3:]).flatten()
    same(gradients(loss.value, model), gradients(-(a * log_p(model, SIX).sum(-1)).sum() / 6, model))
    assert loss.metrics["reward"].tolist() == [pytest.approx(R.sum().item()), 6]
    assert loss.metrics["advantage"][0] == pytest.approx((a * (SIX != PAD).sum(-1)).sum().item())


def test_the_last_sentence_of_each_source_is_what_greedy_search_writes_and_the_others_are_sampled():
    model, seen = translator(), []

    def reward(rollout):
        seen.append(rollout.words)
        return torch.rand(len(rollout.words)).double()

    sources, target = SOURCE.repeat(8, 1), TARGET.repeat(8, 1)
    torch.manual_seed(5)
    Scst(reward, GreedyReward(), samples=3)(model, Batch(sources, target, target.unsqueeze(1)), 0)

    torch.manual_seed(5)
    nothing = torch.zeros(64, T, dtype=torch.bool)
    (words,), given = seen, torch.zeros(64, T, dtype=torch.long)
    words, sampled, best = (
        each.view(16, 4, T)
        for each in (words, *(generate(model, sources, given, nothing, choose) for choose in (sample, greedy)))
    )
    assert torch.equal(words[:, 3], best[:, 3])
    assert torch.equal(words[:, :3], sampled[:, :3])
    assert not any(torch.equal(sampled[:, i], best[:, i]) for i in range(4))


def test_the_greedy_sentence_is_given_the_first_words_too():
    seen = []
    config = Config.parse(
        {"algorithm": {"name": "scst", "anneal": True, "xent_epochs": 0, "mixed_epochs": 1, "delta": 1}}
    )
    made = build_algorithm(
        config.algorithm, Parts(lambda rollout: seen.append(rollout.words) or torch.zeros(4), H, T, V, 1)
    )
    made(translator().float(), BATCH, 0)  # s = 1
    assert seen[0][:, 0].tolist() == [3, 3, 4, 4]


# On average


def candidates_of(samples):
    return list(map(list, itertools.product(range(len(EVERY)), repeat=samples)))


def arbitrary(rollout):
    """Some reward, different for all sentences and for all of their prefixes."""
    return (rollout.words * torch.tensor([1.3, 5.9]).double()).sum(-1).sin()


FAMILY = {  # samples, share of the gradient of the expected reward, the algorithm
    "reinforce": (1, 1.0, lambda **rest: Reinforce(arbitrary, linear(), kl=BETA, **rest)),
    "rloo": (2, 1.0, lambda **rest: Rloo(arbitrary, LeaveOneOut(), samples=2, kl=BETA, **rest)),
    "scst": (1, 1.0, lambda **rest: Scst(arbitrary, GreedyReward(), kl=BETA, **rest)),
    "ppo": (1, 1.0, lambda **rest: Ppo(arbitrary, linear(), updates=2, kl=BETA, **rest)),
    "actor-critic": (1, 1.0, lambda **rest: ActorCritic(arbitrary, critic(), trace=1.0, kl=BETA, **rest)),
    "dr-grpo": (
        2,
        0.5,
        lambda **rest: Grpo(arbitrary, GroupMean(), samples=2, scale=False, by_length=False, kl=BETA, **rest),
    ),
}


@pytest.mark.parametrize("shaped", [False, True])
@pytest.mark.parametrize("name", FAMILY)
def test_the_expected_gradient_is_that_of_the_expected_reward_less_the_kl_term(name, shaped):
    """Over all sets of samples. The group mean of GRPO leaves (k - 1) / k of the rewards, and all of the KL term."""
    samples, share, made = FAMILY[name]
    model, held = translator(), translator()
    r = arbitrary(ONE.rollout(EVERY))
    of_words, of_held = log_p(model, EVERY, SOURCE[:1]).sum(-1), log_p(held, EVERY, SOURCE[:1]).sum(-1).detach()
    p, parameters = of_words.exp(), list(model.parameters())
    objective = share * (p * r).sum() - BETA * (p * (of_words - of_held)).sum()
    best = [p.argmax().item()] if name == "scst" else []  # any sentence that does not hang on the samples

    total = [torch.zeros_like(parameter) for parameter in parameters]
    for chosen in candidates_of(samples):
        algorithm = made(generate=writing(EVERY[chosen + best]), shaped=shaped)
        algorithm.set_reference(held)
        value = algorithm(model, ONE, 0).value
        for sum_, g in zip(total, torch.autograd.grad(value, parameters), strict=True):
            sum_ += p[chosen].prod().detach() * g

    assert p.sum().item() == pytest.approx(1)
    same(total, torch.autograd.grad(-objective, parameters))


@pytest.mark.parametrize("kind", [Reinforce, Ppo])
def test_a_word_is_rewarded_by_what_it_and_the_words_after_it_add(kind):
    model, baseline, rewarded = translator(), linear(), []

    def reward(rollout):
        rewarded.append(len(rollout.words))
        return arbitrary(rollout)

    loss = kind(reward, baseline, generate=writing(SIX), samples=3, shaped=True)(model, BATCH, 0)

    none, one, two = (arbitrary(BATCH.rollout(SIX * (torch.arange(T) < n))) for n in range(3))
    to_go = torch.stack([two - none, two - one], 1)  # (6, T)
    h, mask = model.unroll(shift(SIX), model.encode(SOURCE.repeat_interleave(3, 0))), SIX != PAD
    r_bar = baseline(h)
    left = (to_go - r_bar).detach()
    value = -(log_p(model, SIX) * left).sum() + ((r_bar - to_go).square() * mask).sum()
    same(gradients(loss.value, model, baseline), gradients(value / 6, model, baseline))
    assert sorted(rewarded) == [6, 6 * T]  # sentences once, and all their prefixes together
    total, words = (two * mask.T)[mask.T], mask.sum()  # the reward of its sentence for every word
    spread = (total - total.mean()).square().sum()
    assert loss.metrics["advantage"].tolist() == [pytest.approx((left * mask).sum().item()), words]
    assert loss.metrics["explained"].tolist() == [
        pytest.approx((spread - (left * mask).square().sum()).item(), rel=1e-5),
        pytest.approx(spread.item(), rel=1e-5),
    ]


# Settings


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"algorithm": {"name": "ppo"}, "training": {"rl_dropout": True}},
         "training.rl_dropout = true, but algorithm.name = 'ppo' with algorithm.updates of 2 or more compares the "
         "probability of a word before and after an update, which dropout changes, too; leave training.rl_dropout out"),
        ({"algorithm": {"name": "grpo", "ratio": "sentence"}},
         "algorithm.ratio is read with algorithm.updates of 2 or more: in the first update every ratio is 1; remove it"),
        ({"algorithm": {"name": "ppo", "updates": 1, "clip": 0.1}},
         "algorithm.clip is read with algorithm.updates of 2 or more: in the first update every ratio is 1; remove it"),
        ({"algorithm": {"name": "rloo", "samples": 1}},
         "algorithm.samples = 1: Input should be greater than or equal to 2"),
    ],
)  # fmt: skip
def test_what_has_no_sense_is_refused(values, message):
    with pytest.raises(ConfigError) as error:
        Config.parse(values)
    assert str(error.value) == f"config: {message}"


def test_dropout_is_no_matter_where_candidates_are_learnt_from_once():
    for algorithm in ({"name": "grpo"}, {"name": "ppo", "updates": 1}):
        assert Config.parse({"algorithm": algorithm, "training": {"rl_dropout": True}}).training.rl_dropout
