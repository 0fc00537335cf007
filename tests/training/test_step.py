"""One update, plain and fast. On a CUDA device the fast one is a captured program, which is replayed from the third on."""

import copy
import dataclasses
import math

import pytest
import torch
from torch import nn

from networks import DEVICES, MODELS, PAIRS, T, algorithm, batch_for, network
from seqmixer.algorithms import LinearBaseline, Mixer, Reinforce, Xent
from seqmixer.config import TrainingConfig
from seqmixer.decoding import fast, generate
from seqmixer.kernels import fused
from seqmixer.rewards import replayable, sentence_bleu
from seqmixer.storage import checkpoint
from seqmixer.training.step import Step
from seqmixer.types import Loss

UPDATES = 5  # the first as it is, the second captured, three replayed
CUDA = DEVICES[1:]


def settings(**changes):
    return TrainingConfig(**{"lr": 0.01, "precision": "float32"} | changes)


def step_of(model, algorithm, device="cpu", report=print, **changes):
    return Step(model.to(device).train(), algorithm.to(device), settings(**changes), report=report)


def loss_of(step, batch, epoch=0):
    """The loss of one update."""
    step(batch, epoch)
    loss = step.averages.values()["loss"]
    step.averages.clear()
    return loss


def weights(step):
    return [p.detach().clone() for p in (*step.model.parameters(), *step.algorithm.parameters())]


def memory(step):
    """All that optimisers remember."""
    return [
        value.clone()
        for optimizer in (step.optimizer, step.own_optimizer)
        if optimizer is not None
        for value in checkpoint.optimizer_tensors(optimizer).values()
    ]


def equal(some, others):
    return all(torch.equal(a, b) for a, b in zip(some, others, strict=True))


def trained(model_name, algorithm_name, device="cpu", **changes):
    """After UPDATES on different batches: the step, the losses, and the words that were written."""
    model = network(model_name)
    learning, written = algorithm(algorithm_name, model), []
    learning.set_reference(model)
    generate = learning.generate
    learning.generate = lambda *given: written.append(generate(*given)) or written[-1]
    step = step_of(model, learning, device, **changes)
    torch.manual_seed(7)
    batches = [batch_for(model_name, seed).to(device) for seed in range(UPDATES)]
    torch.manual_seed(8)
    return step, [loss_of(step, batch, epoch) for epoch, batch in enumerate(batches)], written


def assert_same(fast, plain, rtol, atol):
    assert fast[1] == pytest.approx(plain[1], rel=rtol, abs=1e-6)  # advantages add up to nearly 0
    for a, b in zip(weights(fast[0]), weights(plain[0]), strict=True):
        torch.testing.assert_close(a, b, rtol=rtol, atol=atol)


@pytest.mark.parametrize(("model_name", "algorithm_name"), PAIRS)
def test_fast_and_plain_updates_agree(model_name, algorithm_name):
    fast, plain = (trained(model_name, algorithm_name, fast=fast, optimizer="sgd") for fast in (True, False))

    assert_same(fast, plain, 1e-4, 1e-5)
    assert equal(fast[2], plain[2])
    searching = ("xent", "xent-smoothed", "raml", "gold", "e2e", "mrt-distinct", "mrt-beam")
    assert len(fast[2]) == (0 if algorithm_name in searching else UPDATES)


@pytest.mark.parametrize("device", CUDA)
@pytest.mark.parametrize(("model_name", "algorithm_name"), PAIRS)
def test_captured_and_plain_updates_agree(model_name, algorithm_name, device):
    """Also the noise: what a replay draws is what would have been drawn."""
    fast, plain = (trained(model_name, algorithm_name, device, fast=fast, optimizer="sgd") for fast in (True, False))

    assert_same(fast, plain, 1e-4, 1e-4)
    assert not fast[0].programs.impossible
    assert len(fast[0].programs.captured) == 1  # of MIXER too, whose s falls on the way
    assert len(plain[0].programs.captured) == 0


@pytest.mark.parametrize("device", CUDA)
@pytest.mark.parametrize("algorithm_name", ["xent", "mixer"])
def test_captured_and_plain_updates_by_adam_agree(algorithm_name, device):
    fast, plain = (trained("lstm-text", algorithm_name, device, fast=fast) for fast in (True, False))

    assert fast[1] == pytest.approx(plain[1], rel=1e-3)


@pytest.mark.parametrize("device", DEVICES)
def test_a_stage_of_another_program_is_captured_by_itself_and_s_is_turned_within_one(device):
    model, starts = network("lstm-text"), []
    seen = torch.zeros((), device=device)  # written by the program itself, so by its replays too

    @replayable
    def reward(rollout):
        seen.copy_(rollout.start)
        return sentence_bleu(rollout)

    mixer = Mixer(reward, LinearBaseline(model.features), T, [T, T, T, 5, 5, 3, 1, 0])
    step = step_of(model, mixer, device)
    batch = batch_for("lstm-text").to(device)
    for epoch in range(8):
        step(batch, epoch)
        starts.append(seen.item())

    assert starts == [0, 0, 0, 5, 5, 3, 1, 0]
    assert len(step.programs.captured) == (2 if device == "cuda" else 0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("fast", [True, False])
def test_an_update_that_is_not_fast_is_plain_torch(fast, device):
    model, seen = network("lstm-text"), []
    step = step_of(
        model,
        algorithm("mixer", model, lambda rollout: seen.append(fused()) or sentence_bleu(rollout)),
        device,
        fast=fast,
    )
    step(batch_for("lstm-text").to(device), 0)

    assert seen == [fast]
    assert fused()


@pytest.mark.parametrize("device", CUDA)
def test_each_shape_is_captured_once(device):
    model = network("elman-text")
    step, wide = step_of(model, Xent(), device), batch_for("elman-text").to(device)
    narrow = type(wide)(wide.source[:, :4], wide.target, wide.references)
    for batch in [wide, narrow] * 3:
        step(batch, 0)

    assert len(step.programs.captured) == 2


@pytest.mark.parametrize("searched", [generate, fast.generate])
@pytest.mark.parametrize("device", CUDA)
def test_a_reward_that_asks_the_device_is_named_in_one_line_and_training_goes_on(device, searched):
    lines, model = [], network("lstm-text")

    @replayable
    def asking(rollout):
        return sentence_bleu(rollout) + rollout.words.sum().item() % 2

    learning = Reinforce(asking, LinearBaseline(model.features), generate=searched)
    step = step_of(model, learning, device, report=lines.append)
    before = weights(step)
    for seed in range(UPDATES):
        assert math.isfinite(loss_of(step, batch_for("lstm-text", seed).to(device)))

    line = asking.__code__.co_firstlineno + 2
    assert lines == [f"not captured as one program, which is slower: {__file__}:{line} waits for the device"]
    assert step.programs.captured == {}
    assert not any(torch.equal(a, b) for a, b in zip(before, weights(step), strict=True))


@pytest.mark.parametrize("searched", [generate, fast.generate])
@pytest.mark.parametrize("device", CUDA)
def test_what_python_adds_to_a_reward_of_tensors_is_not_frozen(device, searched):
    """Its own counter, and the text of the batch."""
    lines, seen, model = [], [], network("lstm-text")

    def counting(rollout):
        seen.append([meta["number"] for meta in rollout.meta])
        return sentence_bleu(rollout) * len(seen)

    step = step_of(model, Reinforce(counting, LinearBaseline(model.features), searched), device, lines.append)
    for number in range(UPDATES):
        batch = batch_for("lstm-text", number).to(device)
        step(dataclasses.replace(batch, meta=[{"number": number}] * len(batch)), 0)

    assert seen == [[number] * len(batch) for number in range(UPDATES)]
    reason = "the reward is a Python function, which runs anew in every step"
    assert lines == [f"not captured as one program, which is slower: {reason}"]
    assert step.programs.captured == {}


def bad_reward(device):
    """A reward with a factor that a test can turn into NaN, also for a program that was captured."""
    factor = torch.ones((), device=device)
    return replayable(lambda rollout: sentence_bleu(rollout) * factor), factor


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("device", DEVICES)
def test_a_bad_number_changes_neither_weights_nor_memory_and_is_not_counted(device, fast, optimizer, bad):
    reward, factor = bad_reward(device)
    model = network("lstm-text")
    step = step_of(model, algorithm("mixer", model, reward), device, fast=fast, optimizer=optimizer)

    def update(seed):
        step(batch_for("lstm-text", seed).to(device), 0)

    for seed in range(4):
        update(seed)
    before, remembered, means = weights(step), memory(step), step.averages.values()
    factor.fill_(bad)
    update(2)  # a batch in which the model writes some words, or there would be nothing bad
    assert equal(weights(step), before)
    assert equal(memory(step), remembered)
    assert step.averages.values() == means
    assert {"reward", "loss"} <= set(step.averages.bad())
    factor.fill_(1.0)
    update(5)
    assert all(part.isfinite().all() for part in weights(step))
    assert not equal(weights(step), before)
    assert step.averages.values() != means


@pytest.mark.parametrize("where", ["loss", "gradient"])
@pytest.mark.parametrize("device", DEVICES)
def test_a_bad_loss_with_a_good_gradient_is_bad_and_the_other_way_round(device, where):
    class Bad(Xent):
        """One of the two is not a number."""

        def loss(self, *given):
            good = super().loss(*given)
            nan = torch.full_like(good.value, math.nan)
            zero = good.value - good.value.detach()  # with a gradient
            value = good.value + nan if where == "loss" else good.value.detach() + zero.mul(math.inf).nan_to_num(0.0)
            return Loss(value, good.metrics)

    model = network("lstm-text")
    before = [p.detach().clone() for p in model.parameters()]
    step = step_of(model, Bad(), device)

    step(batch_for("lstm-text").to(device), 0)

    gradients = [p.grad for p in model.parameters()]
    assert all(grad.isfinite().all() for grad in gradients) is (where == "loss")
    assert equal([p.detach().cpu() for p in model.parameters()], before)
    assert step.averages.nonfinite().quantities == [where]


@pytest.mark.parametrize("device", DEVICES)
def test_after_a_bad_update_training_goes_on_as_if_there_had_been_none(device):
    def run(bad):
        reward, factor = bad_reward(device)
        model = network("lstm-text")
        step = step_of(model, algorithm("mixer", model, reward), device, optimizer="sgd")
        for seed in range(6):
            if seed == bad:
                factor.fill_(math.nan)
                step(batch_for("lstm-text", 99).to(device), 0)
                factor.fill_(1.0)
            batch = batch_for("lstm-text", seed).to(device)
            torch.manual_seed(seed)
            step(batch, 0)
        return weights(step)

    for a, b in zip(run(bad=3), run(bad=None), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0 if device == "cpu" else 1e-4)


@pytest.mark.parametrize("clip", [0.05, 0.7, 1000.0])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("device", DEVICES)
def test_clipping_is_that_of_torch_before_a_plain_optimiser(device, optimizer, clip):
    model = network("lstm-text").to(device)
    other = copy.deepcopy(model)
    step = step_of(model, Xent(), device, optimizer=optimizer, clip=clip, lr=0.1)
    by_hand = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[optimizer](other.parameters(), lr=0.1, foreach=False)
    for seed in range(4):
        batch = batch_for("lstm-text", seed).to(device)
        step(batch, 0)
        by_hand.zero_grad()
        Xent()(other, batch, 0).value.backward()
        norm = nn.utils.clip_grad_norm_(other.parameters(), clip)
        by_hand.step()
        assert step.averages.values()["gradient"] == pytest.approx(norm.item(), rel=1e-3)
        step.averages.clear()
        assert 0.7 < norm < 1000
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("device", DEVICES)
def test_a_rate_that_was_changed_is_used(device, optimizer):
    model, batch = network("lstm-text"), batch_for("lstm-text").to(device)
    step = step_of(model, Xent(), device, optimizer=optimizer)
    for _ in range(3):
        step(batch, 0)
    before = weights(step)
    step.rate = 0.0
    step(batch, 0)
    assert step.rate == 0
    assert equal(weights(step), before)
    step.rate = 0.5
    step(batch, 0)
    assert step.rate == 0.5
    assert not equal(weights(step), before)


@pytest.mark.parametrize("device", DEVICES)
def test_a_fresh_optimiser_has_no_memory_and_its_rate(device):
    model, batch = network("lstm-text"), batch_for("lstm-text").to(device)
    step = step_of(model, Xent(), device)
    for _ in range(3):
        step(batch, 0)
    step.optimizer = step.fresh(0.25)
    assert step.rate == 0.25
    assert memory(step) == []
    before = weights(step)
    for _ in range(3):
        step(batch, 0)
    assert not equal(weights(step), before)
    assert {int(part) for part in memory(step) if part.dim() == 0} == {3}  # Adam's count of its steps


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("model_name", ["elman-text", "lstm-text-released", "gru-image", "transformer-text"])
def test_dropout_is_another_in_every_update(model_name, device):
    model, batch = network(model_name, dropout=0.5), batch_for(model_name).to(device)
    step = step_of(model, Xent(), device, optimizer="sgd")
    step.rate = 0.0

    losses = [loss_of(step, batch) for _ in range(6)]

    assert len(set(losses)) == 6


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("algorithm_name", ["xent", "reinforce"])
@pytest.mark.parametrize("model_name", MODELS)
def test_in_bfloat16_losses_are_near_the_exact_ones(model_name, algorithm_name, fast, device):
    def first(precision):
        model = network(model_name)
        learning = algorithm(algorithm_name, model)
        learning.generate = lambda model, source, given, keep, choose: given  # the same words for both
        step = step_of(model, learning, device, fast=fast, precision=precision)
        loss = loss_of(step, batch_for(model_name).to(device))
        assert all(part.isfinite().all() and part.dtype is torch.float32 for part in weights(step))
        return loss

    assert first("bfloat16") == pytest.approx(first("float32"), rel=0.02)


class Twice(Reinforce):
    """Learns from the same candidates twice, and writes down what it is given."""

    updates = 2

    def __init__(self, model):
        self.rewards, self.learnt = 0, []

        def reward(rollout):
            self.rewards += 1
            return sentence_bleu(rollout)

        super().__init__(reward, LinearBaseline(model.features))

    def learn(self, batch, candidates, h, log_p):
        self.learnt.append((candidates.words.clone(), log_p.detach().clone()))
        return super().learn(batch, candidates, h, log_p)


def test_candidates_are_collected_and_rewarded_once_and_learnt_from_so_often():
    model = network("lstm-text")
    algorithm = Twice(model)
    step = step_of(model, algorithm)
    torch.manual_seed(3)
    step(batch_for("lstm-text", 1), 0)

    (first, before), (second, after) = algorithm.learnt
    assert torch.equal(first, second)
    assert not torch.equal(before, after)  # an update lies between
    assert algorithm.rewards == 1
    assert step.averages.counts.tolist()[0] == 1  # one batch

    once = step_of(network("lstm-text"), Reinforce(sentence_bleu, LinearBaseline(model.features)))
    torch.manual_seed(3)
    once(batch_for("lstm-text", 1), 0)
    ours, theirs = step.averages.values(), once.averages.values()
    assert ours["reward"] == pytest.approx(theirs["reward"])  # means of both updates
    assert ours["loss"] != pytest.approx(theirs["loss"])
