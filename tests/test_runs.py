import errno
import json
import math
import os
import re
import shutil
import sys

import numpy
import pytest
import torch
from filelock import FileLock

from seqmixer.algorithms import ALGORITHMS
from seqmixer.config import Config
from seqmixer.errors import ConfigError, RewardError, RunError
from seqmixer.evaluation import read_sentences
from seqmixer.rewards import of_counts
from seqmixer.runs import load, task_of, train, try_out
from seqmixer.runs.inference import Search, write
from seqmixer.storage import checkpoint


def config(tmp_path, **changes):
    """Tiny parallel text in a folder, and a run on it."""
    folder = tmp_path / "data"
    folder.mkdir(exist_ok=True)
    sources = ["a b c", "b c", "c d e a", "d", "e a b", "a c", "b d", "c e a"]
    (folder / "a").write_text("\n".join(sources) + "\n")
    (folder / "b").write_text("\n".join(source.upper() for source in sources) + "\n")
    values = {
        "name": "run",
        "data": {
            "task": "text",
            "folder": str(folder),
            "length": 6,
            **{s: ["a", "b"] for s in ("train", "valid", "test")},
        },
        "model": {"hidden": 8},
        "algorithm": {"name": "xent"},
        "training": {"epochs": 2, "batch_size": 4},
    }
    for name, value in changes.items():
        section, _, key = name.partition("__")
        if key:
            values.setdefault(section, {})[key] = value
        else:
            values[section] = value
    return Config.parse(values)


def test_a_run_opened_again_writes_and_scores_the_same(tmp_path):
    run = train(config(tmp_path), tmp_path)
    again = load(tmp_path / "run")
    assert again.config == run.config
    sources = ["a b", "c", "e e e"]
    assert list(write(again, sources, Search(beam=3, nbest=2))) == list(write(run, sources, Search(beam=3, nbest=2)))
    scores = json.loads((tmp_path / "run/scores.json").read_text())
    assert again.evaluate().score == scores["test"]
    assert (tmp_path / "run/test.txt").read_text().splitlines() == again.evaluate().hypotheses


def test_a_run_keeps_its_test_sentences_with_what_their_scores_are_made_of(tmp_path):
    (tmp_path / "mine.py").write_text("def short(hypothesis, references):\n    return 1 / (1 + len(hypothesis))\n")
    names = ("bleu", "chrf", "chrf++", "cider", "rouge_l", f"{tmp_path}/mine.py:short", "0.5*chrf + 0.5*exact")
    names = [name.replace(f"{tmp_path}/mine.py", "mine") for name in names]
    sys.path.insert(0, str(tmp_path))
    run = train(config(tmp_path, evaluation__metrics=names), tmp_path)
    made, kept = run.evaluate(), read_sentences(run.folder)
    assert (kept.sources, kept.references, kept.hypotheses) == (made.sources, made.references, made.hypotheses)
    assert kept.sources[2] == "c d e a"
    assert kept.effects == made.effects
    assert [(each.metric, each.score, each.signature) for each in kept.scored] == [
        (each.metric, each.score, each.signature) for each in made.scored
    ]
    for metric, scored in zip(run.metrics(run.task()), kept.scored, strict=True):
        by_name = of_counts(scored.metric)
        assert by_name.highest == metric.highest
        assert float(by_name.corpus(scored.statistics)) == pytest.approx(scored.score, abs=1e-5)
        assert by_name.of_each(scored.statistics).tolist() == metric.of_each(scored.statistics).tolist()


def test_damaged_test_sentences_are_one_line(tmp_path):
    folder = train(config(tmp_path), tmp_path).folder
    path = folder / "test.jsonl"
    first, *others = path.read_text().splitlines(keepends=True)
    for bad, message in (
        ("{", f"{path}:1:1: not JSON (EOF while parsing an object at column 1)"),
        (first.replace("bleu", "blue"), f"{path}:1: no counts of bleu, which {folder / 'scores.json'} has"),
        (re.sub(r"\d\.0\]", '"x"]', first), f"{path}:1: counts.bleu.9: input should be a valid number"),
        (re.sub(r", \d\.0\]", "]", first), f"{path}: counts of several lengths"),
    ):
        path.write_text("".join([bad.rstrip("\n") + "\n", *others]))
        with pytest.raises(RunError, match=f"^{re.escape(message)}$"):
            read_sentences(folder)
    path.unlink()
    assert read_sentences(folder) is None


def test_a_run_decodes_by_mbr_and_without_unk_from_python_and_from_the_command_line(tmp_path, run):
    opened = train(config(tmp_path, evaluation={"unk": False, "metrics": ["edit", "rouge1"]}), tmp_path)
    folder, sources = tmp_path / "run", ["a b", "c", "e e e"]
    assert "|no-unk|" in json.loads((folder / "scores.json").read_text())["signature"]
    found = opened.evaluate(mbr=4)
    assert found.signature == opened.evaluate(mbr=4, metric="edit").signature
    assert "|mbr:4|utility:edit|seed:1|no-unk|" in found.signature
    assert found.hypotheses == opened.generate(["a b c", "b c", "c d e a", "d", "e a b", "a c", "b d", "c e a"], mbr=4)

    (tmp_path / "in").write_text("\n".join(sources))
    shutil.rmtree(tmp_path / "data")  # nothing of it is needed to write
    chosen = {"mbr": 5, "metric": "chrf", "unk": True}
    code, out, err = run("generate", folder, tmp_path / "in", "--mbr", "5", "--metric", "chrf", "--unk")
    assert (code, out.splitlines()) == (0, opened.generate(sources, **chosen)), err
    code, _, err = run("generate", folder, tmp_path / "in", "--metric", "chrf")
    assert (code, err) == (
        2,
        "seqmixer: --metric chrf needs --mbr, such as --mbr 32: it is what samples are compared by\n",
    )
    code, _, err = run("generate", folder, tmp_path / "in", "--mbr", "4", "--metric", "my_module:f")
    expected = "'my_module:f' is a Python function; MBR compares sentences on the device: choose a built-in metric"
    assert (code, err) == (2, f"seqmixer: {expected}\n")


def test_a_run_is_used_from_python_by_strings(tmp_path, capsys):
    run = train(config(tmp_path), str(tmp_path))
    assert "epoch   2  xent" in capsys.readouterr().err  # progress, without being asked for
    assert repr(load(str(tmp_path / "run"))) == f"Run('{tmp_path}/run': lstm, hidden 8, xent)"
    task = run.task()
    assert repr(task) == "Task('text': 8 / 8 / 8 examples, 9 target words, T = 6)"
    assert [repr(each) for each in (task.test, task.target_vocab)] == ["Split(8 examples)", "Vocab(9 words)"]
    assert repr(run.evaluate()).startswith("Evaluation(scored=[Scored(metric='bleu', score=")
    assert all(len(repr(each)) < 600 for each in (run.evaluate(), run.config))
    assert repr(Config.parse({"training": {"lr": 0.5}})) == "Config(training=TrainingConfig(lr=0.5))"
    sources = ["a b", "c", "e e e"]
    assert run.generate(sources, beam=3) == [each.hypotheses[0] for each in write(run, sources, Search(beam=3))]
    events = [json.loads(line) for line in (tmp_path / "run/log.jsonl").read_text().splitlines()]
    events = [event for event in events if event["event"] == "epoch"]
    assert [row["epoch"] for row in run.history] == [1, 2]
    for row, event in zip(run.history, events, strict=True):
        assert row["train_xent"] == event["train"]["xent"]
        assert row["valid_bleu"] == event["valid"]["bleu"]
        assert row["seconds"] == sum(event["seconds"].values())


def test_a_run_can_be_opened_from_another_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train(config(tmp_path, data__folder="data"), tmp_path)
    monkeypatch.chdir("/")
    load(tmp_path / "run").evaluate()


@pytest.mark.parametrize(
    ("name", "algorithm"),
    [("lstm", algorithm) for algorithm in ALGORITHMS]
    + [(name, algorithm) for name in ("elman", "gru", "transformer") for algorithm in ("e2e", "dad", "mixer")],
)
def test_every_algorithm_and_every_model_trains_from_a_config(tmp_path, name, algorithm):
    changes = {"model__name": name, "model__layers": 2, "model__dropout": 0.1}
    changes |= {} if name == "transformer" else {"model__variant": "released"}
    schedule = {"algorithm__xent_epochs": 1, "algorithm__mixed_epochs": 1, "algorithm__delta": 3}
    run = train(config(tmp_path, **changes, **schedule, algorithm__name=algorithm, training__epochs=4), tmp_path)
    assert len((run.folder / "log.jsonl").read_text().splitlines()) == 4


@pytest.mark.parametrize("name", ["lstm", "transformer"])
def test_a_language_model_needs_no_source(tmp_path, name):
    files = {f"data__{split}": ["b"] for split in ("train", "valid", "test")}
    run = train(config(tmp_path, data__source=False, model__name=name, **files), tmp_path)
    assert run.source_vocab is None
    assert len(list(write(run, ["", ""], Search()))) == 2


@pytest.mark.parametrize("name", ["lstm", "transformer"])
def test_image_features_with_captions(tmp_path, name):
    numpy.save(tmp_path / "features.npy", numpy.random.default_rng(0).normal(size=(6, 5)).astype(numpy.float32))
    split = ["train", "train", "train", "train", "valid", "test"]
    entries = [
        {"id": str(i), "row": i, "split": s, "captions": ["A cat.", "One dog sits"]} for i, s in enumerate(split)
    ]
    (tmp_path / "captions.json").write_text(json.dumps(entries))
    run = train(config(tmp_path, data={"task": "captions", "folder": str(tmp_path)}, model__name=name), tmp_path)
    (written,) = write(run, torch.zeros(1, 5), Search())
    assert written.source == "row 0"
    assert "refs:closest" in run.evaluate().signature


def test_a_run_starts_from_the_best_model_of_another(tmp_path):
    train(config(tmp_path), tmp_path)
    best, _ = checkpoint.load(tmp_path / "run/best")
    changed = {"name": "next", "training__start": str(tmp_path / "run"), "training__lr": 1e-30, "training__epochs": 1}
    train(config(tmp_path, **changed), tmp_path)
    started, _ = checkpoint.load(tmp_path / "next/best")
    assert all(torch.equal(best[name], started[name]) for name in best)


def test_a_run_under_way_needs_no_more_of_the_run_it_started_from(tmp_path):
    train(config(tmp_path), tmp_path)
    changed = {"name": "next", "training__start": str(tmp_path / "run")}
    train(config(tmp_path, **changed), tmp_path)
    shutil.rmtree(tmp_path / "run")
    assert train(config(tmp_path, **changed, training__epochs=3), tmp_path).evaluate()


def test_a_run_may_name_its_start_in_other_words_but_not_another_start(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate(("run", "other")):
        train(config(tmp_path, name=name, seed=seed), tmp_path)
    train(config(tmp_path, name="next", training__start="run"), tmp_path)
    for same in ("./run/", str(tmp_path / "run")):
        train(config(tmp_path, name="next", training__start=same), tmp_path)
    with pytest.raises(RunError, match=r"next holds a run with training.start = '.*/run', not '.*/other'; choose"):
        train(config(tmp_path, name="next", training__start="other"), tmp_path)


def test_a_run_goes_on_where_its_data_was_moved(tmp_path):
    before = train(config(tmp_path), tmp_path).evaluate()
    shutil.move(tmp_path / "data", tmp_path / "moved")
    run = train(config(tmp_path, data__folder=str(tmp_path / "moved")), tmp_path)
    assert run.evaluate().score == before.score


def test_a_run_without_its_checkpoint_is_not_begun_again(tmp_path):
    train(config(tmp_path), tmp_path)
    best = (tmp_path / "run/best/tensors.safetensors").read_bytes()
    for path in tmp_path.glob("run/last*"):
        shutil.rmtree(path)
    message = f"{tmp_path / 'run'} has 2 epochs behind it, but no checkpoint (last) that can be used; put that back, or"
    with pytest.raises(RunError, match=f"^{re.escape(message)}"):
        train(config(tmp_path), tmp_path)
    assert (tmp_path / "run/best/tensors.safetensors").read_bytes() == best


def test_fewer_epochs_than_a_run_has_are_refused(tmp_path):
    train(config(tmp_path), tmp_path)
    message = f"{tmp_path / 'run'} has 2 epochs behind it, and 1 are asked for; ask for 2 or more, or choose another"
    with pytest.raises(RunError, match=f"^{re.escape(message)}"):
        train(config(tmp_path, training__epochs=1), tmp_path)
    assert load(tmp_path / "run").config.training.epochs == 2


def test_a_run_keeps_its_length_when_the_training_files_grow(tmp_path):
    for name in ("train", "valid", "test"):
        (tmp_path / "data").mkdir(exist_ok=True)
        (tmp_path / f"data/{name}.a").write_text("a b\nb\n")
        (tmp_path / f"data/{name}.b").write_text("A B\nB\n")
    files = {f"data__{name}": [f"{name}.a", f"{name}.b"] for name in ("train", "valid", "test")}
    run = train(config(tmp_path, **files, data__length=None, model__name="transformer"), tmp_path)
    before = run.evaluate()
    with (tmp_path / "data/train.a").open("a") as a, (tmp_path / "data/train.b").open("a") as b:
        a.write("a b a b a b a b\n")
        b.write("A B A B A B A B\n")
    assert run.task().length == 3
    after = run.evaluate()
    assert (after.signature, after.hypotheses) == (before.signature, before.hypotheses)


def test_cider_is_not_counted_anew_from_other_training_files(tmp_path):
    files = {"data__train": ["train.a", "train.b"], "evaluation__metrics": ["cider"]}
    made = config(tmp_path, **files)
    for side in "ab":
        (tmp_path / f"data/train.{side}").write_text((tmp_path / f"data/{side}").read_text())
    run = train(made, tmp_path)
    counted = (tmp_path / "run/cider.safetensors").read_bytes()
    (tmp_path / "data/train.b").write_text((tmp_path / "data/b").read_text().lower())
    for call in (run.evaluate, lambda: train(config(tmp_path, **files, training__epochs=3), tmp_path)):
        with pytest.raises(RunError, match="the train data is not what the run began with"):
            call()
    assert (tmp_path / "run/cider.safetensors").read_bytes() == counted


@pytest.mark.parametrize(("precision", "short"), [("tf32", True), ("float32", False)])
def test_a_run_opened_again_multiplies_as_it_was_trained(tmp_path, precision, short):
    train(config(tmp_path, training__precision=precision), tmp_path)
    torch.backends.cuda.matmul.allow_tf32 = not short
    load(tmp_path / "run")
    assert torch.backends.cuda.matmul.allow_tf32 is short


def test_a_start_with_other_words_is_refused(tmp_path):
    train(config(tmp_path), tmp_path)
    swapped = {f"data__{split}": ["b", "a"] for split in ("train", "valid", "test")}
    with pytest.raises(RunError) as error:
        train(config(tmp_path, name="next", training__start=str(tmp_path / "run"), **swapped), tmp_path)
    assert str(error.value) == (
        f"training.start = '{tmp_path / 'run'}': its vocabularies are not those of this run's data; the same id would be "
        "another word. Train on the same data"
    )


def test_a_run_of_another_config_is_not_overwritten(tmp_path):
    train(config(tmp_path), tmp_path)
    before = (tmp_path / "run/config.toml").read_text()
    with pytest.raises(
        RunError, match=re.escape(f"{tmp_path / 'run'} holds a run with seed = 1, not 2; choose another")
    ):
        train(config(tmp_path, seed=2), tmp_path)
    assert (tmp_path / "run/config.toml").read_text() == before


def test_more_epochs_may_be_asked_for(tmp_path):
    train(config(tmp_path), tmp_path)
    train(config(tmp_path, training__epochs=3), tmp_path)
    assert len((tmp_path / "run/log.jsonl").read_text().splitlines()) == 3


def test_what_is_done_about_bad_numbers_may_change(tmp_path):
    train(config(tmp_path), tmp_path)
    train(config(tmp_path, training__epochs=3, training__nonfinite="skip"), tmp_path)
    assert len((tmp_path / "run/log.jsonl").read_text().splitlines()) == 3


def test_same_seed_same_run_and_another_seed_another(tmp_path):
    logs = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        train(config(tmp_path, name=name, seed=seed), tmp_path)
        logs.append(checkpoint.load(tmp_path / name / "last")[0]["model.M_o.weight"])
    assert torch.equal(logs[0], logs[1])
    assert not torch.equal(logs[0], logs[2])


def test_a_run_without_a_model_says_so(tmp_path):
    train(config(tmp_path), tmp_path)
    for path in (tmp_path / "run").glob("best*"):
        path.rename(path.with_name("gone" + path.name))
    with pytest.raises(
        RunError, match=re.escape("run/best is gone, though 2 epochs are done; put it back, or train anew")
    ):
        load(tmp_path / "run")
    for path in (tmp_path / "run").glob("last*"):
        shutil.rmtree(path)
    with pytest.raises(RunError, match=re.escape("run: no model yet; the first is kept after the first epoch")):
        load(tmp_path / "run")


@pytest.mark.parametrize("damage", ["gone", "cut"])
@pytest.mark.filterwarnings("ignore:.*looking for the checkpoint before it")
def test_the_model_before_the_best_one_is_used_with_a_warning_and_never_taken_for_the_result(tmp_path, damage):
    train(config(tmp_path), tmp_path)
    best, scores = tmp_path / "run/best", (tmp_path / "run/scores.json").read_bytes()
    assert checkpoint.peek(best) == checkpoint.load(best)[1]
    assert checkpoint.peek(best)["epoch"] == 2
    if damage == "gone":
        shutil.rmtree(best)
    else:
        (best / "tensors.safetensors").write_bytes(b"")
    what = f"{best}: that of epoch 2 is missing or damaged, and the one before it is of epoch 1"
    with pytest.warns(UserWarning, match=re.escape(f"{what}: that is used")):
        load(tmp_path / "run")
    with pytest.raises(RunError, match=re.escape(f"{what}; put it back, or train anew")):
        train(config(tmp_path), tmp_path)
    assert (tmp_path / "run/scores.json").read_bytes() == scores


def test_a_folder_in_use_by_another_process_is_left_alone(tmp_path):
    (tmp_path / "run").mkdir()
    with FileLock(tmp_path / "run/.lock"), pytest.raises(RunError) as error:
        train(config(tmp_path), tmp_path)
    assert str(error.value) == f"{tmp_path / 'run'} is in use by another process; wait for it, or choose another name"
    assert list((tmp_path / "run").iterdir()) == [tmp_path / "run/.lock"]


def test_a_full_disk_is_one_clear_line_and_nothing_is_lost(tmp_path, monkeypatch):
    train(config(tmp_path), tmp_path)
    before = checkpoint.load(tmp_path / "run/last")[1]

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(RunError) as error:
        train(config(tmp_path, training__epochs=3), tmp_path)
    assert str(error.value) == (
        f"{tmp_path / 'run'} cannot be written: No space left on device; what was saved before is intact"
    )
    monkeypatch.undo()
    assert checkpoint.load(tmp_path / "run/last")[1] == before
    assert train(config(tmp_path, training__epochs=3), tmp_path).evaluate()


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_data_that_changed_since_the_run_began_is_noticed(tmp_path, split):
    files = {f"data__{name}": [f"{name}.a", f"{name}.b"] for name in ("train", "valid", "test")}
    for name in ("train", "valid", "test"):
        (tmp_path / "data").mkdir(exist_ok=True)
        (tmp_path / f"data/{name}.a").write_text("a b\nb\n")
        (tmp_path / f"data/{name}.b").write_text("A B\nB\n")
    run = train(config(tmp_path, **files), tmp_path)
    run.evaluate(split)
    (tmp_path / f"data/{split}.b").write_text("B A\nB\n")
    message = (
        f"{tmp_path / 'run'}: the {split} data is not what the run began with; put the old files back, or begin another "
        "run (--set name=...)"
    )
    for call in (lambda: train(config(tmp_path, **files, training__epochs=3), tmp_path), lambda: run.evaluate(split)):
        with pytest.raises(RunError, match=f"^{re.escape(message)}$"):
            call()


def test_a_damaged_description_of_the_task_is_one_clear_line(tmp_path):
    train(config(tmp_path), tmp_path)
    (tmp_path / "run/manifest.json").unlink()  # which would have said so
    (tmp_path / "run/task.json").write_text("{}")
    with pytest.raises(
        RunError, match=re.escape("run/task.json is missing or damaged; this is no complete run folder")
    ):
        load(tmp_path / "run")


def test_using_a_run_never_imports_code_that_its_folder_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train(config(tmp_path), tmp_path)
    (tmp_path / "evil.py").write_text("raise SystemExit('imported')")
    path = tmp_path / "run/config.toml"
    path.write_text(path.read_text().replace('name = "bleu"', 'name = "evil:reward"'))
    run = load(tmp_path / "run")
    assert run.config.reward.name == "evil:reward"
    with pytest.raises(ConfigError, match="names the Python code 'evil:reward' as a metric"):
        run.evaluate()
    run.evaluate(metrics=["bleu"])
    assert list(write(run, ["a"], Search()))


def test_a_device_that_is_not_there_leaves_no_folder(tmp_path):
    config = Config.parse({"name": "run", "training": {"device": "tpu9"}})

    with pytest.raises(RunError, match=re.escape("training.device = 'tpu9' cannot be used here: ")):
        train(config, tmp_path)

    assert not (tmp_path / "run").exists()


def test_a_reward_that_is_not_finite_fails_before_training(tmp_path):
    task = task_of(config(tmp_path))
    with pytest.raises(
        RewardError, match=r"^the reward gives \[inf, .* for four references; it must be a finite number$"
    ):
        try_out(lambda rollout: torch.full((len(rollout.words),), math.inf), task)


def test_a_run_killed_twice_in_its_first_save_ends_as_if_it_had_not_been(tmp_path, monkeypatch):
    whole = train(config(tmp_path), tmp_path / "whole")
    save_file = checkpoint.save_file

    def killed(tensors, path):
        if path.parent.name == "last.new":
            path.write_bytes(b"half")
            raise KeyboardInterrupt
        save_file(tensors, path)

    for _ in range(2):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(checkpoint, "save_file", killed) or train(config(tmp_path), tmp_path)
    run = train(config(tmp_path), tmp_path)
    assert (run.folder / "scores.json").read_text() == (whole.folder / "scores.json").read_text()
    weights, wanted = (checkpoint.load(folder / "last")[0] for folder in (run.folder, whole.folder))
    assert all(torch.equal(weights[name], wanted[name]) for name in wanted)


def of_one_epoch(tmp_path):
    """A run whose only checkpoint is damaged."""
    run = train(config(tmp_path, training__epochs=1), tmp_path).folder
    (run / "last/state.json").write_text("{")
    return run


def test_a_run_whose_only_checkpoint_is_damaged_starts_again_where_no_more_than_an_epoch_is_lost(tmp_path):
    whole = train(config(tmp_path), tmp_path / "whole")
    run = of_one_epoch(tmp_path)
    (run / "last.new").mkdir()
    (run / "last.new/state.json").write_text("{")
    with pytest.warns(UserWarning, match=re.escape(f"{run / 'last'} is damaged, of the first epoch; the run starts")):
        again = train(config(tmp_path), tmp_path)
    assert (again.folder / "scores.json").read_text() == (whole.folder / "scores.json").read_text()


@pytest.mark.parametrize("log", [True, False])
def test_a_run_with_more_epochs_behind_it_does_not_start_again(tmp_path, log):
    """What is behind it is known from its log, and from its best model."""
    run = train(config(tmp_path), tmp_path).folder
    assert checkpoint.peek(run / "best")["epoch"] == 2
    for name in ("last", "last.1"):
        (run / name / "state.json").write_text("{")
    if not log:
        (run / "log.jsonl").unlink()
    with pytest.raises(RunError, match=r"has 2 epochs behind it, but no checkpoint \(last\) that can be used; put"):
        train(config(tmp_path), tmp_path)


def test_a_deleted_log_is_noticed(tmp_path):
    run = train(config(tmp_path), tmp_path).folder
    (run / "log.jsonl").unlink()
    message = f"{run / 'log.jsonl'} lacks 2 of 2 epochs that are done, the first is 1; if you have a copy"
    with pytest.warns(UserWarning, match=re.escape(message)):
        train(config(tmp_path, training__epochs=3), tmp_path)


def test_the_log_is_on_the_disk_before_a_checkpoint_that_knows_of_its_epochs(tmp_path, monkeypatch):
    synced, fsync, save = set(), os.fsync, checkpoint.save
    monkeypatch.setattr(os, "fsync", lambda handle: (synced.add(os.fstat(handle).st_ino), fsync(handle)))
    saves = []

    def watched(folder, *arguments, **options):
        saves.append(folder.name)
        if folder.name == "last":
            assert (tmp_path / "run/log.jsonl").stat().st_ino in synced
        save(folder, *arguments, **options)

    monkeypatch.setattr(checkpoint, "save", watched)
    train(config(tmp_path, training__epochs=1, training__save_minutes=1000), tmp_path)
    assert "last" in saves


@pytest.mark.parametrize("name", ["target.vocab", "task.json", "config.toml"])
def test_a_run_that_was_changed_is_not_started_from(tmp_path, name):
    path = train(config(tmp_path), tmp_path).folder / name
    if name == "config.toml":
        path.write_text(path.read_text().replace("window = 5", "window = 3"))
    elif name == "task.json":
        path.write_text(path.read_text().replace('"length": 6', '"length": 5'))
    else:
        path.write_text(path.read_text() + "Z\n")
    with pytest.raises(RunError, match=rf"{name}.* is not what "):
        train(config(tmp_path, name="next", training__start=str(path.parent)), tmp_path)


def test_the_rate_of_a_run_may_not_change(tmp_path):
    train(config(tmp_path, training__lr=0.01), tmp_path)
    with pytest.raises(RunError, match=re.escape("holds a run with training.lr = 0.01, not 0.02; choose another name")):
        train(config(tmp_path, training__lr=0.02, training__epochs=3), tmp_path)


def test_a_copied_tree_of_runs_resumes_though_the_first_is_still_there(tmp_path):
    first, copy = tmp_path / "first", tmp_path / "copy"
    train(config(tmp_path), first)
    train(config(tmp_path, name="next", training__start=str(first / "run")), first)
    shutil.copytree(first, copy)
    later = {"name": "next", "training__epochs": 3}
    whole = train(config(tmp_path, **later, training__start=str(first / "run")), first)
    copied = train(config(tmp_path, **later, training__start=str(copy / "run")), copy)
    assert (copied.folder / "scores.json").read_text() == (whole.folder / "scores.json").read_text()


def files_of(tmp_path, last):
    """Files whose last word is in the test split only: it is not known."""
    (tmp_path / "data").mkdir(exist_ok=True)
    for name, words in (("train", "A B"), ("valid", "A B"), ("test", f"A {last}")):
        (tmp_path / f"data/{name}.a").write_text("a b\nb\n")
        (tmp_path / f"data/{name}.b").write_text(f"{words}\nB\n")
    return {f"data__{name}": [f"{name}.a", f"{name}.b"] for name in ("train", "valid", "test")}


def test_a_changed_word_that_is_not_known_is_noticed(tmp_path):
    run = train(config(tmp_path, **files_of(tmp_path, "X")), tmp_path)
    files_of(tmp_path, "Y")
    with pytest.raises(RunError, match=r"the test data is not what the run began with"):
        run.evaluate()
