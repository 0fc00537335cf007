"""Bad numbers and falling scores: what the run does, what it says, and that a stopped run goes on just so."""

import math
import os
import signal

import pytest
import torch

from seqmixer.algorithms import Algorithm, LinearBaseline, Mixer, Stage
from seqmixer.algorithms.xent import reference_loss
from seqmixer.config import TrainingConfig
from seqmixer.data import batches, text_task
from seqmixer.errors import Diverged, Interrupted
from seqmixer.models import AttentiveEncoder, LSTMCell, Recurrent
from seqmixer.rewards import sentence_bleu
from seqmixer.storage import checkpoint
from seqmixer.training import Callback, Training, epochs, read_log
from seqmixer.training.averages import Averages, NonFinite
from seqmixer.training.recovery import named
from seqmixer.training.step import Step
from seqmixer.types import Batch

WORDS = ["a", "b", "c", "d", "e"]
SOURCES = [" ".join(WORDS[(i * k) % 5] for k in range(1, 2 + i % 4)) for i in range(9)]
BAD = SOURCES[5]  # "a a"
ADVICE = (
    "what was saved before is intact. Resume with another training.nonfinite, or begin another run (--set name=...) with "
    "a lower training.lr, training.rl_lr or training.clip"
)


@pytest.fixture
def task():
    """Nine short sentences to be read backwards."""
    pairs = SOURCES, [[" ".join(reversed(source.split()))] for source in SOURCES]
    return text_task("reverse", pairs, pairs, pairs, length=6)


def model_for(task, dropout=0.2):
    torch.manual_seed(3)
    encoder = AttentiveEncoder(len(task.source_vocab), 8, positions=8)
    return Recurrent(LSTMCell, encoder, len(task.target_vocab), 8, dropout=dropout)


def sources(batch):
    return [meta["source"] for meta in batch.meta]


class Poisoned(Algorithm):
    """XENT whose loss is NaN in batches with a certain sentence, from a certain epoch on."""

    def __init__(self, since=0, poison=(BAD,)):
        super().__init__()
        self.since, self.poison = since, set(poison)

    def loss(self, model, batch, candidates, stage, scheduled):
        loss = reference_loss(model, batch, batch.target)
        bad = stage.scheduled >= self.since and self.poison & set(sources(batch))
        return type(loss)(loss.value * (math.nan if bad else 1), loss.metrics)

    def stage(self, epoch):
        return Stage("poisoned", program="poisoned", scheduled=epoch)


def nan_for(source):
    """BLEU, but NaN for one source."""

    def reward(rollout):
        bad = torch.tensor([meta["source"] == source for meta in rollout.meta])
        return sentence_bleu(rollout).masked_fill(bad, math.nan)

    return reward


def settings(**changes):
    return TrainingConfig(batch_size=3, lr=0.01, **changes)


class Listening(Callback):
    """Writes down what is said, and the weights at that moment, of the model and of the best one."""

    def __init__(self):
        self.lines, self.weights, self.best = [], [], []

    def note(self, line):
        self.lines.append(line)
        self.weights.append({name: weight.clone() for name, weight in self.run.model.state_dict().items()})
        if checkpoint.exists(self.run.out / "best"):
            self.best.append(checkpoint.load(self.run.out / "best")[0])


def poisoned(task, out, algorithm, epochs=3, **changes):
    listening = Listening()
    run = Training(
        model_for(task), algorithm, task, out, epochs=epochs, settings=settings(**changes), callbacks=[listening]
    )
    listening.run = run
    return run


def events(folder, kind):
    return [event for event in read_log(folder) if event["event"] == kind]


def batch_of(task, epoch, source=BAD):
    """Which batch of an epoch has a sentence, counted from 1."""
    stream = batches(task.train, 3, task.length, seed=1, epoch=epoch)
    return next(number for number, batch in enumerate(stream, 1) if source in sources(batch))


def equal(some, others):
    assert some.keys() == others.keys()
    return all(torch.equal(some[name], others[name]) for name in some)


# What is remembered on the device


def test_means_remember_which_batch_was_the_first_bad_one_and_how_many_follow():
    means, nan = Averages(torch.device("cpu")), math.nan
    for loss, gradient in [(1, 1), (2, nan), (3, 1), (nan, 1), (nan, 1)]:
        means.add({"loss": torch.tensor([loss, 1.0]), "gradient": torch.tensor([gradient, 1.0])})

    assert means.nonfinite() == NonFinite(batch=2, batches=3, in_a_row=2, quantities=["loss", "gradient"])
    assert means.values() == {"loss": 2.0, "gradient": 1.0}  # of the first and the third
    means.clear_nonfinite()
    assert means.nonfinite() is None
    assert means.values() == {"loss": 2.0, "gradient": 1.0}
    means.add({"loss": torch.tensor([nan, 1]), "gradient": torch.tensor([0.0, 1])})
    assert means.nonfinite() == NonFinite(batch=6, batches=1, in_a_row=3, quantities=["loss"])
    means.clear()
    means.add({"loss": torch.tensor([nan, 1]), "gradient": torch.tensor([0.0, 1])})
    assert means.nonfinite() == NonFinite(batch=1, batches=1, in_a_row=4, quantities=["loss"])


def test_adding_to_the_means_asks_the_device_nothing():
    """A tensor on the device `meta` has no value that could be asked for."""
    means = Averages(torch.device("meta"))
    means.add({"loss": torch.empty(2, device="meta")})
    assert means.counts.shape == (4,)


# stop


def test_a_run_stops_at_the_first_bad_batch_and_names_quantity_and_sentences(task, tmp_path):
    run = poisoned(task, tmp_path, Poisoned(since=1))
    with pytest.raises(Diverged) as error:
        run.run()
    number = batch_of(task, 1)
    bad = [sources(b) for b in batches(task.train, 3, task.length, seed=1, epoch=1)][number - 1]
    where = "somewhere in " + ", ".join(map(repr, bad))
    said = f"epoch 2, batch {number}: not a finite number: loss, gradient; {where}"
    assert str(error.value) == f"{tmp_path}: {said}; {ADVICE}"
    (event,) = events(tmp_path, "bad numbers")
    assert event == {
        "event": "bad numbers", "epoch": 2, "batch": number, "batches": 1, "quantities": ["loss", "gradient"],
        "where": where, "done": "stopped",
    }  # fmt: skip
    assert checkpoint.load(tmp_path / "last")[1]["epoch"] == 1


def test_sentences_with_a_bad_reward_are_named_alone(task, tmp_path):
    model = model_for(task)
    mixer = Mixer(nan_for(BAD), LinearBaseline(model.features), 6, [6, 0])
    with pytest.raises(Diverged) as error:
        Training(model, mixer, task, tmp_path, epochs=2, settings=settings()).run()
    assert str(error.value) == (
        f"{tmp_path}: epoch 2, batch {batch_of(task, 1)}: not a finite number: reward, reward_spread, advantage, "
        f"explained, loss, gradient; sentences 'a a'; {ADVICE}"
    )


def test_a_model_that_gives_a_sentence_no_probability_is_found_by_it(task, tmp_path):
    model = model_for(task)
    with torch.no_grad():
        model.encoder.words.weight[task.source_vocab.encode("d")[0]] = math.nan
    with pytest.raises(Diverged, match=r"; sentences '[^']*d[^']*'"):
        Training(model, Poisoned(poison=()), task, tmp_path, epochs=1, settings=settings()).run()


def test_three_sentences_are_named_and_long_ones_are_cut():
    batch = Batch(*[torch.zeros(5, 1)] * 3, meta=[{"source": s} for s in ("x" * 70, "b", "c", "d", "e")])
    assert named([], batch) == f"somewhere in '{'x' * 60}...', 'b', 'c' and 2 more"
    assert named(["b", "c"], batch) == "sentences 'b', 'c'"


# skip


def test_a_skipped_batch_leaves_the_run_as_if_it_had_not_been_there(task, tmp_path):
    """Without dropout nothing is random, so the weights are those of the other batches alone."""
    run = Training(
        model_for(task, dropout=0.0), Poisoned(), task, tmp_path, epochs=2, settings=settings(nonfinite="skip")
    )
    run.run()
    model = model_for(task, dropout=0.0).train()
    step = Step(model, Poisoned(poison=()), settings())
    for epoch in range(2):
        for batch in batches(task.train, 3, task.length, seed=1, epoch=epoch):
            if BAD not in sources(batch):
                step(batch, epoch)
    weights, _ = checkpoint.load(tmp_path / "last")
    assert equal(checkpoint.under("model", weights), model.state_dict())


def test_skipped_batches_are_one_event_and_two_lines_an_epoch_however_many(task, tmp_path):
    twice = next(
        iter(sources(b)[0] for b in batches(task.train, 3, task.length, seed=1, epoch=0) if BAD not in sources(b))
    )
    run = poisoned(task, tmp_path, Poisoned(poison=(BAD, twice)), epochs=1, nonfinite="skip")
    run.run()
    (event,) = events(tmp_path, "bad numbers")
    first = min(batch_of(task, 0), batch_of(task, 0, twice))
    assert (event["batch"], event["batches"], event["done"]) == (first, 2, "skipped")
    assert run.callbacks[1].lines == [
        f"epoch 1, batch {first}: not a finite number: loss, gradient; {event['where']}; skipped",
        "  epoch 1: 2 batches skipped",
    ]
    assert [event["event"] for event in read_log(tmp_path)] == ["bad numbers", "epoch"]


def test_ten_bad_batches_in_a_row_are_too_many_also_across_epochs(task, tmp_path):
    run = poisoned(task, tmp_path, Poisoned(since=1, poison=SOURCES), epochs=9, nonfinite="skip")
    with pytest.raises(Diverged) as error:
        run.run()
    # three batches an epoch from the second on: the tenth is the first of the fifth
    (bad,) = [sources(b) for i, b in enumerate(batches(task.train, 3, task.length, seed=1, epoch=4)) if i == 0]
    assert str(error.value) == (
        f"{tmp_path}: epoch 5, batch 1: not a finite number: loss, gradient; somewhere in "
        f"{', '.join(map(repr, bad))}; 10 batches in a row were skipped; {ADVICE}"
    )
    assert [event["batches"] for event in events(tmp_path, "bad numbers")] == [3, 3, 3, 1]


# rollback


def test_a_bad_number_takes_the_run_back_to_the_best_model_with_half_the_rate(task, tmp_path):
    run = poisoned(task, tmp_path, Poisoned(since=2), epochs=3, nonfinite="rollback")
    seen = {}

    def note(line):
        seen.update(line=line, memory=dict(run.step.optimizer.state), rate=run.step.rate)
        seen["weights"] = {name: weight.clone() for name, weight in run.model.state_dict().items()}
        seen["best"], seen["state"] = checkpoint.load(tmp_path / "best")

    run.callbacks[1].note = note
    run.run()
    epoch = seen["state"]["epoch"]
    assert 1 <= epoch <= 2
    assert equal(seen["weights"], seen["best"])
    assert (seen["memory"], seen["rate"]) == ({}, 0.005)
    (event,) = events(tmp_path, "bad numbers")
    assert event["done"] == f"went back to the model of epoch {epoch}, rate 0.005"
    assert seen["line"] == (
        f"epoch 3, batch {batch_of(task, 2)}: not a finite number: loss, gradient; {event['where']}; {event['done']}"
    )
    assert [event["rate"] for event in epochs(read_log(tmp_path))] == [0.01, 0.01, 0.005]


def test_in_the_first_epoch_it_goes_back_to_the_first_model(task, tmp_path):
    run = poisoned(task, tmp_path, Poisoned(), epochs=1, nonfinite="rollback")
    first = {name: weight.clone() for name, weight in run.model.state_dict().items()}
    run.run()
    assert equal(run.callbacks[1].weights[0], first)
    assert run.callbacks[1].lines[0].endswith("; went back to the first model, rate 0.005")


def test_after_five_returns_to_the_same_model_the_run_gives_up(task, tmp_path):
    run = poisoned(task, tmp_path, Poisoned(since=1, poison=SOURCES), epochs=3, nonfinite="rollback")
    with pytest.raises(Diverged) as error:
        run.run()
    bad = [sources(b) for b in batches(task.train, 3, task.length, seed=1, epoch=2)][2]
    # epoch 2 goes back three times, and is then validated as good as the best, not better; epoch 3 twice
    assert str(error.value) == (
        f"{tmp_path}: epoch 3, batch 3: not a finite number: loss, gradient; somewhere in "
        f"{', '.join(map(repr, bad))}; the run went back to the same model 5 times; {ADVICE}"
    )
    rates = [float(event["done"].split()[-1]) for event in events(tmp_path, "bad numbers")[:-1]]
    assert rates == pytest.approx([0.01 / 2**n for n in range(1, 6)], rel=1e-4)


def test_a_run_that_is_told_to_go_back_before_it_has_a_model_says_so(task, tmp_path):
    with pytest.raises(Interrupted):
        resumable(task, tmp_path, "stop", algorithm=Poisoned(poison=()), callbacks=[StopAt(1)]).run()
    with pytest.raises(Diverged, match="; there is no model to go back to yet; what was saved before is intact"):
        resumable(task, tmp_path, "rollback", algorithm=Poisoned(poison=SOURCES)).run()


def test_a_run_that_finds_better_models_in_between_may_go_back_more_often(task, tmp_path):
    model = model_for(task, dropout=0.0)
    changed = TrainingConfig(batch_size=3, lr=0.1, nonfinite="rollback")
    Training(model, Poisoned(since=1), task, tmp_path, epochs=10, settings=changed).run()
    assert len(events(tmp_path, "bad numbers")) == 9


def test_the_mixed_stages_may_go_back_as_often_as_any(task, tmp_path):
    run = falling(task, tmp_path, count=7)

    class Watch(Callback):
        def epoch_end(self, run, event):
            if event["epoch"] == 6:
                run.position.rollbacks = 5

        def epoch_begin(self, run):
            assert run.position.rollbacks == 0

    run.callbacks.append(Watch())
    run.run()


# patience


def falling(task, out, callbacks=(), count=12, **changes):
    """MIXER that is paid for being wrong, so that validation falls."""
    model = model_for(task)
    forced = [6] * 6 + [3] + [0] * (count - 7)
    mixer = Mixer(lambda rollout: -sentence_bleu(rollout), LinearBaseline(model.features), 6, forced)
    changed = TrainingConfig(**{"batch_size": 3, "lr": 0.03, "rl_lr": 0.02, "min_lr": 0.003, **changes})
    return Training(model, mixer, task, out, epochs=count, settings=changed, callbacks=callbacks)


def test_patience_goes_back_to_the_best_model_as_the_log_alone_says_and_then_ends(task, tmp_path):
    listening = Listening()
    run = listening.run = falling(task, tmp_path, [listening], count=20, patience=2)
    run.run()
    logged, best, waited, rate, expected = epochs(read_log(tmp_path)), (-math.inf, -math.inf), 0, 0.02, []
    for event in logged:
        score = event["valid"]["bleu"], -event["valid"]["perplexity"]
        waited = 0 if score > best or event["epoch"] <= 6 else waited + 1
        if score > best:
            best, best_epoch = score, event["epoch"]
        if event["epoch"] > 6:
            assert event["rate"] == rate
        if waited == 2:
            rate, waited = rate / 2, 0
            why = f"2 epochs have not beaten bleu {best[0]:.2f}"
            if rate < 0.003:
                assert events(tmp_path, "end") == [{"event": "end", "epoch": event["epoch"], "why": why}]
                break
            done = f"went back to the model of epoch {best_epoch}, rate {rate:g}"
            expected.append({"event": "patience", "epoch": event["epoch"], "why": why, "done": done})
    assert events(tmp_path, "patience") == expected
    assert len(expected) == 2  # 0.02, 0.01, 0.005, and 0.0025 is too low
    assert event is logged[-1]
    assert len(logged) < 20
    assert listening.lines == [
        *(f"  {event['why']}: {event['done']}" for event in expected),
        f"  {why}: the run ends after {len(logged)} of 20 epochs",
    ]
    assert all(equal(weights, best) for weights, best in zip(listening.weights[:2], listening.best[:2], strict=True))
    before = (tmp_path / "log.jsonl").read_bytes()
    falling(task, tmp_path, count=20, patience=2).run()  # it is over, and stays so
    assert (tmp_path / "log.jsonl").read_bytes() == before


def test_five_returns_to_one_model_are_enough(task, tmp_path):
    falling(task, tmp_path, count=30, patience=1, min_lr=0.0).run()
    logged = events(tmp_path, "patience")
    assert all(event["why"].startswith("1 epoch has not beaten bleu ") for event in logged)
    assert len({event["done"].split(",")[0] for event in logged[-5:]}) == 1  # one model, five times
    (end,) = events(tmp_path, "end")
    assert end["why"].startswith("1 epoch has not beaten bleu ")


def test_without_patience_nothing_is_gone_back_to(task, tmp_path):
    falling(task, tmp_path).run()
    assert events(tmp_path, "patience") == []


def test_epochs_of_xent_are_not_waited_for(task, tmp_path):
    changed = TrainingConfig(batch_size=3, lr=0.3, patience=1)
    Training(model_for(task), Poisoned(poison=()), task, tmp_path, epochs=8, settings=changed).run()
    assert not all(event["best"] for event in epochs(read_log(tmp_path)))
    assert events(tmp_path, "patience") == []


# A stopped run goes on as if it had not been stopped


class StopAt(Callback):
    """Presses Ctrl-C after so many batches."""

    def __init__(self, batches):
        self.left = batches

    def step(self, run):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGINT)


class DieAt(Callback):
    """Dies at the n-th word that the run says: after what it did, before that is saved."""

    def __init__(self, lines):
        self.left = lines

    def note(self, line):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


def resumable(task, out, policy, algorithm=None, callbacks=(), kl=0.0, patience=None):
    model = model_for(task)
    made = algorithm or Mixer(nan_for(BAD), LinearBaseline(model.features), 6, [6, 6, 3, 0, 0], kl=kl)
    changed = settings(nonfinite=policy, rl_lr=0.02, patience=patience)
    return Training(model, made, task, out, epochs=5, settings=changed, callbacks=callbacks)


def same(whole, parts):
    for place in ("last", "best"):
        (weights, state), (others, other) = checkpoint.load(whole / place), checkpoint.load(parts / place)
        assert equal(weights, others)
        assert {**state, "seconds": 0} == {**other, "seconds": 0}
    logs = ([{**event, "seconds": 0} for event in read_log(folder)] for folder in (whole, parts))
    assert next(logs) == next(logs)


@pytest.mark.parametrize("stopped", [1, 7, 8, 9, 11, 14], ids=lambda n: f"after {n} batches")
@pytest.mark.parametrize("policy", ["skip", "rollback"])
def test_a_stopped_run_with_bad_numbers_goes_on_just_so(task, tmp_path, policy, stopped):
    resumable(task, tmp_path / "whole", policy, kl=0.1).run()
    assert events(tmp_path / "whole", "bad numbers")
    with pytest.raises(Interrupted):
        resumable(task, tmp_path / "parts", policy, kl=0.1, callbacks=[StopAt(stopped)]).run()
    resumable(task, tmp_path / "parts", policy, kl=0.1).run()
    same(tmp_path / "whole", tmp_path / "parts")


def test_a_run_that_dies_while_it_goes_back_goes_on_just_so(task, tmp_path):
    resumable(task, tmp_path / "whole", "rollback").run()
    for lines in (1, 2, 1):
        with pytest.raises(KeyboardInterrupt):
            resumable(task, tmp_path / "parts", "rollback", callbacks=[DieAt(lines)]).run()
    resumable(task, tmp_path / "parts", "rollback").run()
    same(tmp_path / "whole", tmp_path / "parts")


def test_a_run_that_went_back_to_several_models_finds_the_first_of_them_again(task, tmp_path):
    """The third time the best model is written, the first is no longer kept: `last` must not be from before it."""

    def going_back(out, callbacks=()):
        model, changed = model_for(task, dropout=0.0), TrainingConfig(batch_size=3, lr=0.1, nonfinite="rollback")
        return Training(model, Poisoned(since=1), task, out, epochs=8, settings=changed, callbacks=callbacks)

    going_back(tmp_path / "whole").run()
    to = [event["done"].split(",")[0] for event in events(tmp_path / "whole", "bad numbers")]
    third = to.index(list(dict.fromkeys(to))[2])
    with pytest.raises(KeyboardInterrupt):
        going_back(tmp_path / "parts", [DieAt(third + 1)]).run()
    going_back(tmp_path / "parts").run()
    same(tmp_path / "whole", tmp_path / "parts")


@pytest.mark.parametrize(
    "progress", [StopAt(25), StopAt(28), StopAt(31), DieAt(1), DieAt(2)], ids=lambda p: f"{type(p).__name__} {p.left}"
)
def test_a_stopped_run_that_lost_patience_goes_on_just_so(task, tmp_path, progress):
    falling(task, tmp_path / "whole", patience=1).run()
    assert events(tmp_path / "whole", "patience")
    with pytest.raises((Interrupted, KeyboardInterrupt)):
        falling(task, tmp_path / "parts", [progress], patience=1).run()
    falling(task, tmp_path / "parts", patience=1).run()
    same(tmp_path / "whole", tmp_path / "parts")


@pytest.mark.parametrize("rl_lr", [None, 0.002])
def test_the_reference_of_the_kl_term_is_the_model_that_the_first_paid_epoch_began_with(task, tmp_path, rl_lr):
    model = model_for(task)
    mixer = Mixer(sentence_bleu, LinearBaseline(model.features), 6, [6, 6, 3, 0], kl=0.1)
    run = Training(model, mixer, task, tmp_path, epochs=4, settings=settings(rl_lr=rl_lr))
    began = {}

    class Watch(Callback):
        def epoch_begin(self, run):
            epoch = run.position.epoch + 1
            began[epoch] = {name: weight.clone() for name, weight in model.state_dict().items()}
            assert (mixer.reference is None) == (epoch < 3)

    run.callbacks.append(Watch())
    run.run()
    weights, _ = checkpoint.load(tmp_path / "last")
    assert equal(checkpoint.under("algorithm.reference", weights), began[3])
    first, second, third, fourth = epochs(read_log(tmp_path))
    assert "kl" not in first["train"] | second["train"]
    assert third["train"]["kl"] >= 0
    assert fourth["train"]["kl"] >= 0
