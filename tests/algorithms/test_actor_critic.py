"""A critic of its own: what it sees, what it learns, what the actor makes of it."""

import pytest
import torch
from torch import nn

from networks import V as WORDS
from seqmixer.algorithms import ActorCritic, Candidates, Critic, Ppo
from seqmixer.decoding import shift
from seqmixer.losses import log_prob
from seqmixer.models import AttentiveEncoder, LSTMCell, Recurrent
from seqmixer.types import EOS, PAD, Batch

V, H, T = 5, 3, 3
SOURCE = torch.tensor([[4, 5, 6], [8, 3, PAD]])
TARGET = torch.tensor([[3, EOS, PAD], [4, 4, EOS]])
BATCH = Batch(SOURCE, TARGET, TARGET.unsqueeze(1))
FOUR = torch.tensor([[3, EOS, PAD], [3, 4, 4], [4, 4, EOS], [EOS, PAD, PAD]])  # two for each source
EVERY = torch.tensor(
    [[EOS, PAD, PAD], *([w, EOS, PAD] for w in (3, 4)), *([a, b, c] for a in (3, 4) for b in (3, 4) for c in (EOS, 3, 4))]
)  # fmt: skip


def random(module):
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    return module.double()


def translator():
    return random(Recurrent(LSTMCell, AttentiveEncoder(9, H, positions=6, window=3), V, H))


def critic():
    return random(Critic(V, 4, T))


def arbitrary(rollout):
    """Some reward, different for all sentences and for all of their prefixes."""
    return (rollout.words * torch.tensor([1.3, 5.9, 3.1]).double()).sum(-1).sin()


def writing(words):
    return lambda model, source, given, keep, choose: torch.where(keep, given, words)


def candidates(words, k):
    return Candidates(words, words != PAD, k, lambda: arbitrary(BATCH.rollout(words)))


def log_p(model, words, source):
    k = len(words) // len(source)
    o = model.scores(model.unroll(shift(words), model.encode(source.repeat_interleave(k, 0))))
    return log_prob(o, words) * (words != PAD)


def test_the_value_of_a_prefix_hangs_on_the_words_before_and_on_the_reference_alone():
    values, four = critic(), BATCH.repeat(2)
    before = values(None, candidates(FOUR, 2), four)
    for t in range(T):
        other = FOUR.clone()
        other[:, t:] = (other[:, t:] + 1) % V
        changed = values(None, candidates(other, 2), four)
        torch.testing.assert_close(changed[:, : t + 1], before[:, : t + 1])
        assert t == T - 1 or not torch.isclose(changed[:, t + 1 :], before[:, t + 1 :]).any()
    reference = Batch(SOURCE, TARGET.flip(0), TARGET.unsqueeze(1)).repeat(2)
    assert not torch.isclose(values(None, candidates(FOUR, 2), reference), before).any()
    elsewhere = Batch(SOURCE.flip(0), TARGET, TARGET.unsqueeze(1)).repeat(2)
    torch.testing.assert_close(values(None, candidates(FOUR, 2), elsewhere), before)


def test_two_sentences_for_a_source_are_two_sources_with_one():
    values = critic()
    twice = BATCH.repeat(2)
    torch.testing.assert_close(values(None, candidates(FOUR, 2), twice), values(None, candidates(FOUR, 1), twice))


@pytest.mark.parametrize("trace", [0.0, 0.6, 1.0])
def test_the_critic_learns_what_the_delayed_one_says_by_the_gradient_of_finite_differences(trace):
    model, values = translator(), critic()
    made = ActorCritic(arbitrary, values, generate=writing(FOUR), samples=2, trace=trace, critic_delay=0.5, shaped=True)
    random(made.delayed)
    kept = {name: value.clone() for name, value in made.delayed.state_dict().items()}
    found = made.collect(model, BATCH, made.stage(0), torch.tensor(0.0))
    for name, value in made.delayed.state_dict().items():  # half of the way
        torch.testing.assert_close(value, (kept[name] + values.state_dict()[name]) / 2)
    h = torch.zeros(4, T, H).double()

    def error():
        return made.learn(BATCH.repeat(2), found, h, torch.zeros(4, T).double()).own

    expected, parameters = torch.autograd.grad(error(), list(values.parameters())), list(values.parameters())
    with torch.no_grad():
        for parameter, gradient in zip(parameters, expected, strict=True):
            flat, e = parameter.view(-1), 1e-6
            for i in range(0, len(flat), 7):
                flat[i] += e
                above = error()
                flat[i] -= 2 * e
                below = error()
                flat[i] += e
                assert ((above - below) / (2 * e)).item() == pytest.approx(gradient.view(-1)[i].item(), abs=1e-5)
    assert max(gradient.abs().max() for gradient in expected) > 0.1


def test_each_of_the_two_networks_is_trained_by_its_own_loss_alone():
    model, values = translator(), critic()
    made = ActorCritic(arbitrary, values, generate=writing(FOUR), samples=2)
    found = made.collect(model, BATCH, made.stage(0), torch.tensor(0.0))
    words = log_p(model, FOUR, SOURCE)
    learnt = made.learn(BATCH.repeat(2), found, torch.zeros(4, T, H).double(), words)
    assert not any(torch.autograd.grad(learnt.value, list(values.parameters()), retain_graph=True, allow_unused=True))
    assert not any(torch.autograd.grad(learnt.own, list(model.parameters()), retain_graph=True, allow_unused=True))
    assert not any(parameter.requires_grad for parameter in made.delayed.parameters())


class Exact(nn.Module):
    """V_t = E[R | w_1..w_{t-1}] less what is earned, by enumeration."""

    def __init__(self, p, shaped):
        super().__init__()
        self.p, self.shaped = p, shaped

    def forward(self, h, candidates, batch):
        reward = arbitrary(BATCH.rollout(EVERY))
        rows = []
        for words in candidates.words:
            row = []
            for t in range(T):
                begins = (EVERY[:, :t] == words[:t]).all(-1)
                value = (self.p * reward)[begins].sum() / self.p[begins].sum()
                earned = arbitrary(BATCH.rollout(words.where(torch.arange(T) < t, PAD)))
                row.append(value - earned if self.shaped else value)
            rows.append(torch.stack(row))
        return torch.stack(rows)


@pytest.mark.parametrize("shaped", [False, True])
@pytest.mark.parametrize("trace", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("right", [False, True], ids=["any critic", "the right critic"])
def test_the_expected_gradient_is_exact_with_the_right_critic_and_with_lambda_1_for_any(right, trace, shaped):
    model, one = translator(), Batch(SOURCE[:1], TARGET[:1], TARGET[:1].unsqueeze(1))
    words = log_p(model, EVERY, SOURCE[:1]).sum(-1)
    p, parameters = words.exp(), list(model.parameters())
    assert p.sum().item() == pytest.approx(1)
    values = Exact(p.detach(), shaped) if right else critic()
    total = [torch.zeros_like(parameter) for parameter in parameters]
    for i in range(len(EVERY)):
        made = ActorCritic(arbitrary, values, generate=writing(EVERY[i : i + 1]), trace=trace, shaped=shaped)
        gradients = torch.autograd.grad(made(model, one, 0).value, parameters)
        for sum_, gradient in zip(total, gradients, strict=True):
            sum_ += p[i].detach() * gradient

    exact = torch.autograd.grad(-(p * arbitrary(BATCH.rollout(EVERY))).sum(), parameters)

    off = max((a - b).abs().max().item() for a, b in zip(total, exact, strict=True))
    assert off < 1e-7 if right or trace == 1 else off > 1e-3


def test_a_critic_is_a_baseline_of_others_too():
    model, values = translator(), critic()
    loss = Ppo(arbitrary, values, generate=writing(FOUR), samples=2)(model, BATCH, 0)
    r, mask = arbitrary(BATCH.rollout(FOUR)).unsqueeze(-1), FOUR != PAD
    v = values(None, candidates(FOUR, 2), BATCH.repeat(2))
    value = -(log_p(model, FOUR, SOURCE) * (r - v).detach()).sum() + ((v - r).square() * mask).sum()
    for one, other in zip(
        torch.autograd.grad(loss.value, [*model.parameters(), *values.parameters()]),
        torch.autograd.grad(value / 4, [*model.parameters(), *values.parameters()]),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_the_critic_learns_which_sentences_are_good():
    """It is told by the reference which words are rewarded; no baseline of the prefix alone could know."""
    torch.manual_seed(1)
    target = torch.randint(4, WORDS, (64, 4))
    words = torch.where(torch.rand(64, 4) < 0.5, target, torch.randint(4, WORDS, (64, 4)))
    batch = Batch(target[:, :0], target, target.unsqueeze(1))
    values = Critic(WORDS, 16, 4)

    class Fixed(nn.Module):
        def encode(self, source):
            return ()

        def unroll(self, words, context):
            return torch.zeros(*words.shape, 1)

        def log_prob(self, h, words):
            return torch.zeros(words.shape)

    made = ActorCritic(
        lambda rollout: (rollout.words == rollout.references[:, 0, : rollout.words.shape[1]]).float().mean(-1),
        values, generate=writing(words), shaped=True, trace=0.9, critic_delay=0.5,
    )  # fmt: skip
    adam = torch.optim.Adam(values.parameters(), lr=0.01)
    for _ in range(150):
        adam.zero_grad()
        loss = made(Fixed(), batch, 0)
        loss.value.backward()
        adam.step()
    assert loss.metrics["explained"][0] / loss.metrics["explained"][1] > 0.5
