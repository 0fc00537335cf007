"""What TensorBoard and trackio read of a run, by their own readers, is what log.jsonl says."""

import json
import re
import sys
import tomllib

import pytest

from seqmixer import Config
from seqmixer.errors import ConfigError, SeqmixerError
from seqmixer.runs import train
from seqmixer.training import Callback, epochs, read_log, trackers

BATCHES = 2  # 20 sentences in batches of 10


def config(epochs=4):
    return Config.parse(
        {
            "name": "tracked",
            "data": {"limit": 20},
            "model": {"hidden": 4},
            "algorithm": {"name": "mixer", "xent_epochs": 1, "mixed_epochs": 1, "delta": 6},
            "training": {"batch_size": 10, "epochs": epochs, "threads": 1, "device": "cpu"},
        }
    )


class Fault(Exception):
    pass


class Dies(Callback):
    """After the log was written and before the checkpoint: the run does that epoch again."""

    def __init__(self, epoch):
        self.epoch = epoch

    def epoch_end(self, run, event):
        if event["epoch"] == self.epoch:
            raise Fault


def wanted(folder):
    """By step: every number of an epoch, as the columns of docs/log.md are nested."""
    found = {}
    for event in epochs(read_log(folder)):
        numbers = {"epoch": event["epoch"], "rate": event["rate"]}
        for group in ("train", "valid", "effects", "seconds"):
            numbers |= {f"{group}/{name}": value for name, value in event[group].items()}
        found[event["epoch"] * BATCHES] = numbers
    return found


def read_tensorboard(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(str(folder / "tensorboard"), {"scalars": 0, "tensors": 0}).Reload()
    found = {}
    for name in reader.Tags()["scalars"]:
        for point in reader.Scalars(name):
            assert name not in found.setdefault(point.step, {})  # no step twice
            found[point.step][name] = point.value
    texts = {
        name: [e.tensor_proto.string_val[0].decode() for e in reader.Tensors(name)] for name in reader.Tags()["tensors"]
    }
    return found, texts["config/text_summary"], texts["samples/text_summary"]


def read_trackio(folder):
    import trackio.sqlite_storage as module

    module.TRACKIO_DIR = folder / "trackio"
    storage = module.SQLiteStorage
    assert storage.get_projects() == ["seqmixer"]
    (run,) = storage.get_run_records("seqmixer")
    found, samples = {}, []
    for row in storage.get_logs("seqmixer", run["name"], run_id=run["id"]):
        samples.append(row.pop("samples"))
        del row["timestamp"]
        assert row["step"] not in found  # no step twice
        found[row.pop("step")] = row
    return found, storage.get_run_config("seqmixer", run["name"], run_id=run["id"]), samples


def test_both_have_the_numbers_the_samples_and_the_config_of_the_run_also_once_it_was_stopped(tmp_path, monkeypatch):
    monkeypatch.delenv("TRACKIO_DIR", raising=False)
    monkeypatch.setenv("TRACKIO_SPACE_ID", "someone/elsewhere")  # must not be sent anything
    both = ["tensorboard", "trackio", "trackio"]
    with pytest.raises(Fault):
        train(config(), tmp_path, [*trackers(both), Dies(3)])
    folder = train(config(), tmp_path, trackers(both)).folder
    log = wanted(folder)
    assert len(log) == 4

    found, configs, samples = read_tensorboard(folder)
    assert found.keys() == log.keys()
    for step, numbers in log.items():
        assert found[step] == pytest.approx(numbers, rel=1e-6)  # they are float32
    assert [line.removeprefix("    ") for line in configs[0].splitlines()] == (
        folder / "config.toml"
    ).read_text().splitlines()
    last = epochs(read_log(folder))[-1]["samples"]
    assert len(samples) == 4
    assert all(text in samples[-1] for sample in last for text in sample.values())

    found, settings, samples = read_trackio(folder)
    assert found == log
    config_file = tomllib.loads((folder / "config.toml").read_text())
    assert {name: settings[name] for name in config_file} == config_file
    assert [sample["_value"] for sample in samples] == [event["samples"] for event in epochs(read_log(folder))]


def test_a_tracker_that_comes_later_has_the_epochs_before_it(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    with pytest.raises(Fault):
        train(config(), tmp_path, [Dies(2)])
    folder = train(config(), tmp_path, trackers(["trackio"])).folder
    assert not (folder / "trackio").exists()
    assert read_trackio(tmp_path)[0] == wanted(folder)


@pytest.mark.parametrize(("name", "module"), [("tensorboard", "torch.utils.tensorboard"), ("trackio", "trackio")])
def test_a_missing_package_is_one_line(monkeypatch, name, module):
    monkeypatch.setitem(sys.modules, module, None)
    line = f"--track {name} needs {name}; install it with: pip install 'seqmixer[track]'"
    with pytest.raises(SeqmixerError, match=f"^{re.escape(line)}$"):
        trackers([name])


def test_an_unknown_tracker_is_refused():
    with pytest.raises(ConfigError, match=r"unknown tracker 'wandb'. Known: tensorboard, trackio\."):
        trackers(["wandb"])


def test_the_command_takes_trackers(run, tmp_path, monkeypatch):
    monkeypatch.delenv("TRACKIO_DIR", raising=False)
    path = tmp_path / "mine.toml"
    path.write_text(config(epochs=1).toml())
    code, out, err = run("train", path, "--out", tmp_path, "--track", "tensorboard", "--track", "trackio", "--json")
    assert code == 0, err
    assert json.loads(out)["run"] == str(tmp_path / "tracked")  # nobody else printed
    assert read_tensorboard(tmp_path / "tracked")[0].keys() == read_trackio(tmp_path / "tracked")[0].keys() == {BATCHES}
