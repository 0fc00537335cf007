import dataclasses
import json
import math
import os
import random
import re
import shutil
import signal
import time

import pytest
import torch

import networks
from seqmixer.algorithms import Algorithm, Dad, LinearBaseline, Mixer, Stage, Xent
from seqmixer.config import TrainingConfig
from seqmixer.data import text_task
from seqmixer.errors import Interrupted, RunError
from seqmixer.models import AttentiveEncoder, LSTMCell, Recurrent
from seqmixer.rewards import sentence_bleu
from seqmixer.schedules import decayed
from seqmixer.storage import checkpoint
from seqmixer.training import Callback, Training, device, epochs, read_log, saving
from seqmixer.types import Loss

SETTINGS = TrainingConfig(batch_size=4, lr=0.01)


@pytest.fixture
def task():
    """Nine short sentences to be read backwards."""
    words = ["a", "b", "c", "d", "e"]
    sources = [" ".join(words[(i * k) % 5] for k in range(1, 2 + i % 4)) for i in range(9)]
    pairs = sources, [[" ".join(reversed(source.split()))] for source in sources]
    return text_task("reverse", pairs, pairs, pairs, length=6)


def model_for(task, dropout=0.2):
    torch.manual_seed(3)
    encoder = AttentiveEncoder(len(task.source_vocab), 8, positions=8)
    return Recurrent(LSTMCell, encoder, len(task.target_vocab), 8, dropout=dropout)


def mixer_for(model, forced):
    return Mixer(sentence_bleu, LinearBaseline(model.features), 6, forced)


def training(task, out, forced=(6, 6, 3, 0), settings=SETTINGS, **kwargs):
    model = model_for(task)
    return Training(model, mixer_for(model, forced), task, out, epochs=len(forced), settings=settings, **kwargs)


class StopAt(Callback):
    """Presses Ctrl-C after so many batches."""

    def __init__(self, batches):
        self.left = batches

    def step(self, run):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGINT)


class Hearing(Callback):
    """Writes down what is said."""

    def __init__(self):
        self.lines = []

    def note(self, line):
        self.lines.append(line)


def without_seconds(folder):
    return [{k: v for k, v in event.items() if k != "seconds"} for event in read_log(folder)]


def test_sentences_that_mixer_wrote_nothing_of_are_not_in_the_mean_reward(task, tmp_path):
    """Batches are of like length: of some nothing is written while s is large."""
    model = model_for(task)
    paid_one = Mixer(lambda rollout: torch.ones(len(rollout.words)), LinearBaseline(model.features), 6, (5, 3, 0))
    settings = SETTINGS.model_copy(update={"batch_size": 1})
    Training(model, paid_one, task, tmp_path, epochs=3, settings=settings).run()
    logged = [event["train"] for event in epochs(read_log(tmp_path))]
    assert [means.get("reward") for means in logged] == [None, 1.0, 1.0]
    assert logged[0]["own_words"] == 0 < logged[1]["own_words"] < 0.5


@pytest.mark.parametrize("rl_dropout", [False, True])
def test_dropout_is_on_where_words_are_learnt_and_off_where_they_are_sampled(task, tmp_path, rl_dropout):
    """Seen where it acts: a dropped input is 0, which no kept one is."""
    model, by_epoch = model_for(task, dropout=0.5), [[] for _ in range(4)]
    algorithm = mixer_for(model, (6, 6, 3, 0))
    epoch = iter(range(12))  # of three batches each
    collect = algorithm.collect
    algorithm.collect = lambda *given: current.append(next(epoch) // 3) or collect(*given)
    current = []

    def seen(module, given, dropped):
        if module.training is False and torch.is_grad_enabled() is False:
            return  # sampling and validation: as deployed
        by_epoch[current[-1]].append(bool((dropped == 0).any()))

    model.dropout.register_forward_hook(seen)
    settings = SETTINGS.model_copy(update={"rl_dropout": rl_dropout})
    Training(model, algorithm, task, tmp_path, epochs=4, settings=settings).run()

    assert [all(values) for values in by_epoch] == [True, True, rl_dropout, rl_dropout]
    assert [any(values) for values in by_epoch] == [True, True, rl_dropout, rl_dropout]


@pytest.mark.parametrize("batches", [1, 3, 4, 8, 11], ids=lambda n: f"stopped after {n} batches")
@pytest.mark.parametrize("rl_lr", [None, 0.003])
def test_resumed_run_equals_uninterrupted_bit_for_bit(task, tmp_path, batches, rl_lr):
    settings = SETTINGS.model_copy(update={"rl_lr": rl_lr})
    training(task, tmp_path / "whole", settings=settings).run()
    with pytest.raises(Interrupted):
        training(task, tmp_path / "parts", settings=settings, callbacks=[StopAt(batches)]).run()
    training(task, tmp_path / "parts", settings=settings).run()

    for place in ("last", "best"):
        whole, _ = checkpoint.load(tmp_path / "whole" / place)
        parts, _ = checkpoint.load(tmp_path / "parts" / place)
        assert whole.keys() == parts.keys()
        for name in whole:
            assert torch.equal(whole[name], parts[name]), name
    assert without_seconds(tmp_path / "whole") == without_seconds(tmp_path / "parts")


@pytest.mark.parametrize("name", networks.ALGORITHMS)
def test_every_algorithm_resumes_bit_for_bit(task, tmp_path, name):
    def run(folder, *callbacks):
        model = model_for(task)
        algorithm = networks.algorithm(name, model)
        return Training(model, algorithm, task, tmp_path / folder, epochs=3, settings=SETTINGS, callbacks=callbacks)

    run("whole").run()
    with pytest.raises(Interrupted):
        run("parts", StopAt(4)).run()
    run("parts").run()

    whole, parts = (checkpoint.load(tmp_path / folder / "last")[0] for folder in ("whole", "parts"))
    assert whole.keys() == parts.keys()
    assert all(torch.equal(whole[each], parts[each]) for each in whole)


@pytest.mark.slow
def test_killed_at_twenty_random_moments_a_run_ends_with_the_same_weights(task, tmp_path, monkeypatch):
    """SIGKILL, also while a checkpoint is written: it is made to write one after every batch."""
    monkeypatch.setattr("seqmixer.training.saving.SHARE", math.inf)
    settings = SETTINGS.model_copy(update={"save_minutes": 1e-9, "rl_lr": 0.003})
    forced = (6,) * 6 + (4, 2, 0) * 2
    training(task, tmp_path / "whole", forced=forced, settings=settings).run()
    rng, kills = random.Random(0), 0
    while kills < 20:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                training(task, tmp_path / "parts", forced=forced, settings=settings).run()
                code = 0
            finally:
                os._exit(code)
        time.sleep(rng.uniform(0.01, 0.12))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):  # it was done before the signal came
            assert os.WEXITSTATUS(status) == 0
            shutil.rmtree(tmp_path / "parts")
            continue
        kills += 1
    training(task, tmp_path / "parts", forced=forced, settings=settings).run()
    for place in ("last", "best"):
        whole, _ = checkpoint.load(tmp_path / "whole" / place)
        parts, _ = checkpoint.load(tmp_path / "parts" / place)
        assert all(torch.equal(whole[name], parts[name]) for name in whole if not name.startswith("means"))
    assert without_seconds(tmp_path / "whole") == without_seconds(tmp_path / "parts")


def test_an_interrupted_run_says_where_it_stopped(task, tmp_path):
    with pytest.raises(
        Interrupted, match=re.escape(f"stopped in epoch 2 after 1 of 3 batches; saved in {tmp_path / 'last'}")
    ):
        training(task, tmp_path, callbacks=[StopAt(4)]).run()


def test_a_finished_run_is_not_trained_again(task, tmp_path):
    training(task, tmp_path).run()
    before = (tmp_path / "log.jsonl").read_bytes()
    progress, said = StopAt(1), []
    progress.note = said.append
    assert training(task, tmp_path, callbacks=[progress]).run().epoch == 4
    assert (tmp_path / "log.jsonl").read_bytes() == before
    assert said == [f"{tmp_path}: all epochs are done, nothing is trained; another folder begins anew"]


def test_epochs_that_died_unsaved_are_forgotten_by_the_log(task, tmp_path):
    training(task, tmp_path, forced=(6, 6)).run()
    lost = {**read_log(tmp_path)[-1], "epoch": 3, "stage": "lost"}
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write(json.dumps(lost) + '\n{"event": "ep')
    training(task, tmp_path, forced=(6, 6, 3)).run()
    assert [event["epoch"] for event in read_log(tmp_path)] == [1, 2, 3]
    assert "lost" not in (tmp_path / "samples.txt").read_text()


def test_best_is_the_epoch_with_the_highest_validation_score_and_is_left_in_the_model(task, tmp_path):
    run = training(task, tmp_path, forced=(6,) * 12)
    position = run.run()
    valid = [(event["valid"]["bleu"], -event["valid"]["perplexity"]) for event in epochs(read_log(tmp_path))]
    assert position.best == max(valid)[0]
    assert position.best_epoch == 1 + valid.index(max(valid))
    weights, state = checkpoint.load(tmp_path / "best")
    assert state == {"epoch": position.best_epoch, "score": position.best}
    for name, weight in run.model.state_dict().items():
        assert torch.equal(weight, weights[name])


def test_perplexity_decides_between_models_of_equal_score(task, tmp_path):
    """Sentences of at most four words have no BLEU to speak of, and their first epoch is not the best."""
    short = dataclasses.replace(task, length=3)
    position = Training(model_for(short), Xent(), short, tmp_path, epochs=4, settings=SETTINGS).run()
    events = epochs(read_log(tmp_path))
    assert {event["valid"]["bleu"] for event in events} == {0.0}
    perplexities = [event["valid"]["perplexity"] for event in events]
    assert position.best_epoch == 1 + perplexities.index(min(perplexities)) > 1


def test_the_log_tells_what_sequence_level_training_needs_to_be_watched_by(task, tmp_path):
    training(task, tmp_path).run()
    xent, _, _, reinforce = epochs(read_log(tmp_path))
    assert set(xent["train"]) == {"xent", "loss", "gradient"}
    assert set(reinforce["train"]) == {
        "reward", "reward_spread", "advantage", "explained", "entropy", "length_ratio", "cut", "own_words", "distinct", "loss", "gradient",
    }  # fmt: skip
    assert set(reinforce["valid"]) == {"perplexity", "bleu"}
    assert set(reinforce["seconds"]) == {"sample", "score", "reward", "backward", "update", "rest", "validate"}
    assert all(seconds >= 0 for seconds in reinforce["seconds"].values())
    assert xent["samples"][0].keys() == {"source", "reference", "hypothesis"}
    assert (
        "== epoch 4: MIXER, XENT on the first s = 0 words, REINFORCE on the rest"
        in (tmp_path / "samples.txt").read_text()
    )


def test_mixed_stages_start_from_the_best_model_with_a_rate_of_their_own(task, tmp_path):
    run = training(task, tmp_path, settings=SETTINGS.model_copy(update={"rl_lr": 0.002}))
    seen = {}

    class Watch(Callback):
        def epoch_begin(self, run):
            if run.position.epoch == 2:
                seen["weights"] = {name: value.clone() for name, value in run.model.state_dict().items()}
                seen["memory"] = dict(run.step.optimizer.state)
                seen["best"], _ = checkpoint.load(tmp_path / "best")

    run.callbacks.append(Watch())
    run.run()
    assert [event["rate"] for event in epochs(read_log(tmp_path))] == [0.01, 0.01, 0.002, 0.002]
    assert seen["memory"] == {}
    for name, weight in seen["best"].items():
        assert torch.equal(seen["weights"][name], weight)


def test_sgd_rate_follows_the_released_rule_and_ends_the_run(task, tmp_path):
    settings = TrainingConfig(batch_size=4, optimizer="sgd", lr=3.0, decay=1.2, min_lr=2.0)
    model = model_for(task)
    Training(model, Xent(), task, tmp_path, epochs=200, settings=settings).run()
    events = epochs(read_log(tmp_path))
    rate, best = 3.0, math.inf
    for event in events:
        assert event["rate"] == rate
        entropy = math.log(event["valid"]["perplexity"])
        rate, best = decayed(rate, entropy, best), min(best, entropy)
    assert rate < 2.0
    assert len(events) < 200


def test_the_rate_of_the_mixed_stages_does_not_follow_perplexity(task, tmp_path):
    settings = TrainingConfig(batch_size=4, lr=3.0, rl_lr=1e-5, decay=2.0, min_lr=1e-4)  # 3.0 ruins perplexity
    model = model_for(task)
    algorithm = mixer_for(model, [6, 6, 2, 2, 2])
    Training(model, algorithm, task, tmp_path, epochs=5, settings=settings).run()
    assert [event["rate"] for event in epochs(read_log(tmp_path))][2:] == [1e-5, 1e-5, 1e-5]


def test_xent_does_not_end_a_run_whose_rewarded_stage_has_a_rate_of_its_own(task, tmp_path):
    settings = TrainingConfig(batch_size=4, optimizer="sgd", lr=3.0, rl_lr=0.5, decay=2.0, min_lr=2.0)
    forced = [6] * 12 + [2]
    Training(model := model_for(task), mixer_for(model, forced), task, tmp_path, epochs=13, settings=settings).run()
    rates = [event["rate"] for event in epochs(read_log(tmp_path))]
    assert rates[-1] == 0.5
    assert (len(rates), rates[0], rates[-2]) == (13, 3.0, 2.0)  # it fell, to min_lr and no further


def test_a_run_that_ends_early_says_why(task, tmp_path):
    settings = TrainingConfig(batch_size=4, optimizer="sgd", lr=3.0, decay=2.0, min_lr=2.0)
    heard = Hearing()
    Training(model_for(task), Xent(), task, tmp_path, epochs=50, settings=settings, callbacks=[heard]).run()
    done = len(epochs(read_log(tmp_path)))
    (end,) = [event for event in read_log(tmp_path) if event["event"] == "end"]
    assert end == {"event": "end", "epoch": done, "why": "the rate 1.5 is below training.min_lr = 2"}
    assert f"  the rate 1.5 is below training.min_lr = 2: the run ends after {done} of 50 epochs" in heard.lines
    assert done < 50


class EndAt(Callback):
    """Asks the run to end after so many batches, and notes all that it is told."""

    def __init__(self, batches):
        self.left, self.told = batches, []

    def begin(self, run):
        self.told.append("begin")

    def epoch_begin(self, run):
        self.told.append(f"epoch {run.position.epoch + 1}")

    def step(self, run):
        self.left -= 1
        if self.left == 0:
            run.end("enough")
            run.end("more than enough")  # the first reason counts

    def epoch_end(self, run, event):
        assert read_log(run.out)[-1] == event  # the log is written first
        assert not checkpoint.exists(run.out / "last") or checkpoint.load(run.out / "last")[1]["epoch"] < event["epoch"]
        self.told.append(event["event"])

    def event(self, run, event):
        self.told.append((event["event"], event["why"]))

    def end(self, run):
        self.told.append("end")


def test_a_callback_ends_the_run_after_its_epoch_and_it_stays_ended(task, tmp_path):
    callback = EndAt(4)  # batches, of three an epoch
    position = training(task, tmp_path, callbacks=[callback]).run()
    assert (position.epoch, position.over) == (2, True)
    assert callback.told == ["begin", "epoch 1", "epoch", "epoch 2", "epoch", ("end", "enough"), "end"]
    assert read_log(tmp_path)[-1] == {"event": "end", "epoch": 2, "why": "enough"}
    again = EndAt(1)
    assert training(task, tmp_path, callbacks=[again]).run().epoch == 2
    assert again.told == ["begin", "end"]


def test_a_rate_that_begins_below_the_least_ends_the_run_only_when_it_falls(task, tmp_path):
    settings = TrainingConfig(batch_size=4, optimizer="sgd", lr=1e-9, decay=1.2, min_lr=2.0)  # too small to do anything
    Training(model_for(task), Xent(), task, tmp_path, epochs=4, settings=settings).run()
    assert [event["rate"] for event in epochs(read_log(tmp_path))] == [1e-9, 1e-9]  # nothing to compare the first with


def test_the_gradient_norm_is_clipped_and_the_baseline_does_not_count(task, tmp_path):
    settings = TrainingConfig(batch_size=9, optimizer="sgd", lr=1.0, clip=0.01)
    model = model_for(task, dropout=0.0)
    run = Training(model, mixer_for(model, [2]), task, tmp_path, epochs=1, settings=settings)
    run.algorithm.reward = lambda rollout: 1000.0 + torch.zeros(len(rollout.words))  # a huge baseline error
    before = [parameter.detach().clone() for parameter in model.parameters()]
    run.step(next(iter_batches(task)), 0)
    moved = torch.stack([(p - q).norm() for p, q in zip(model.parameters(), before, strict=True)]).norm()
    assert moved.item() == pytest.approx(0.01, rel=1e-3)  # lr * clip: all of it the model's


def iter_batches(task):
    from seqmixer.data import batches

    return batches(task.train, 9, task.length, seed=1, epoch=0)


class Broken(Algorithm):
    def loss(self, model, batch, candidates, stage, scheduled):
        loss = Xent()(model, batch, 0)
        return dataclasses.replace(loss, value=loss.value / scheduled)

    def stage(self, epoch):
        return Stage("broken", program="broken", scheduled=1 - epoch)  # divided by 0 from the second on


def test_a_loss_that_is_not_finite_stops_the_run_and_leaves_the_last_checkpoint(task, tmp_path):
    model = model_for(task)
    with pytest.raises(RunError) as error:
        Training(model, Broken(), task, tmp_path, epochs=2, settings=SETTINGS).run()
    assert str(error.value) == (
        f"{tmp_path}: epoch 2, batch 1: not a finite number: loss, gradient; somewhere in 'd b e c'; what was saved "
        "before is intact. Resume with another training.nonfinite, or begin another run (--set name=...) with a lower "
        "training.lr, training.rl_lr or training.clip"
    )
    weights, state = checkpoint.load(tmp_path / "last")
    assert state["epoch"] == 1
    assert all(torch.equal(tensor, weights[f"model.{name}"]) for name, tensor in model.state_dict().items())
    assert all(tensor.isfinite().all() for tensor in model.state_dict().values())


def test_a_checkpoint_is_written_within_an_epoch_too(task, tmp_path, monkeypatch):
    settings = SETTINGS.model_copy(update={"save_minutes": 1e-9})
    saves = []
    monkeypatch.setattr(saving, "SHARE", math.inf)  # whatever writing takes
    monkeypatch.setattr(checkpoint, "save", lambda folder, tensors, state, keep=1: saves.append((folder.name, state)))
    monkeypatch.setattr(saving.Checkpoints, "load_best", lambda self, position: None)
    training(task, tmp_path, forced=(6,), settings=settings).run()
    assert [(s["epoch"], s["batch"]) for name, s in saves if name == "last"] == [(0, 1), (0, 2), (0, 3), (1, 0)]


def test_a_best_model_from_after_the_position_is_not_the_start_of_the_mixed_stages(task, tmp_path):
    """Killed, twice, after `best` of epoch 3 was written but before `last`: epoch 3 begins from the best before it."""
    settings = SETTINGS.model_copy(update={"rl_lr": 0.003})
    training(task, tmp_path / "whole", settings=settings).run()

    class Kill(Callback):
        def epoch_end(self, run, event):
            if event["epoch"] == 3:
                if not event["best"]:
                    checkpoint.save(tmp_path / "killed/best", run.model.state_dict(), {"epoch": 3, "score": 99.0})
                raise KeyboardInterrupt

    for _ in range(2):
        run = training(task, tmp_path / "killed", settings=settings, callbacks=[Kill()])
        with pytest.raises(KeyboardInterrupt):
            run.run()
    training(task, tmp_path / "killed", settings=settings).run()
    whole, _ = checkpoint.load(tmp_path / "whole/last")
    killed, _ = checkpoint.load(tmp_path / "killed/last")
    assert all(torch.equal(whole[name], killed[name]) for name in whole)


def test_dad_logs_its_coin(task, tmp_path):
    Training(model_for(task), Dad([1.0, 0.25]), task, tmp_path, epochs=2, settings=SETTINGS).run()
    assert [event["train"]["truth"] for event in epochs(read_log(tmp_path))] == [1.0, 0.25]


def test_a_device_that_is_not_there_is_one_clear_line(task, tmp_path):
    settings = SETTINGS.model_copy(update={"device": "tpu9"})
    with pytest.raises(RunError, match=re.escape("training.device = 'tpu9' cannot be used here: ")):
        Training(model_for(task), Xent(), task, tmp_path, epochs=1, settings=settings)


@pytest.mark.parametrize("name", ["nonsense", "meta", "privateuseone"])
def test_what_torch_calls_a_device_but_cannot_compute_with_is_refused_and_not_offered(name):
    with pytest.raises(RunError) as error:
        device(name)
    message, _, reason = str(error.value).partition(": ")
    assert message == f"training.device = {name!r} cannot be used here"
    assert reason
    assert "meta," not in reason


def test_loss_without_metrics_is_enough():
    assert Loss(torch.tensor(1.0)).metrics == {}


def test_a_best_model_of_an_epoch_that_is_not_done_is_discarded(task, tmp_path):
    """Death came after the best model of the second epoch was written, and before the checkpoint of that epoch."""
    settings = SETTINGS.model_copy(update={"save_minutes": 0})
    for forced in ((6,), (6, 6)):
        training(task, tmp_path, forced=forced, settings=settings).run()
    saved = [checkpoint.load(tmp_path / name) for name in ("last.1", "best.1")]
    assert [state["epoch"] for _, state in saved] == [1, 1]
    assert checkpoint.load(tmp_path / "best")[1]["epoch"] == 2
    shutil.rmtree(tmp_path / "last")
    (tmp_path / "last.1").rename(tmp_path / "last")
    resumed = training(task, tmp_path, forced=(6,), settings=settings)
    resumed.run()
    assert resumed.position.best_epoch == 1
    assert checkpoint.load(tmp_path / "best")[1]["epoch"] == 1
    weights = resumed.model.state_dict()
    assert all(torch.equal(weights[name], weight) for name, weight in saved[1][0].items())
