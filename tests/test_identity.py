"""Whatever happens to the files of a run folder, it is opened as it was, or refused in one line."""

import json
import os
import re
import sys

import pytest
import torch

from seqmixer.config import Config
from seqmixer.errors import ConfigError, DataError, RunError, SeqmixerError
from seqmixer.rewards import DocumentFrequencies
from seqmixer.runs import load, train
from seqmixer.runs.inference import Search, write
from seqmixer.storage import checkpoint
from seqmixer.storage.identity import MAY_CHANGE, read_config, require_inside, require_own_code
from seqmixer.training import read_log

SOURCES = ["a b c", "b c", "c d e a", "d", "e a b", "a c", "b d", "c e a"]


def config(folder, **training):
    """Tiny parallel text beside the run."""
    for name, lines in (("a", SOURCES), ("b", [source.upper() for source in SOURCES])):
        (folder / name).write_text("\n".join(lines) + "\n")
    files = {split: ["a", "b"] for split in ("train", "valid", "test")}
    return Config.parse(
        {
            "name": "run",
            "data": {"task": "text", "folder": str(folder), "length": 6, **files},
            "model": {"hidden": 4},
            "algorithm": {"name": "xent"},
            "training": {"epochs": 2, "batch_size": 4, "lr": 0.01, **training},
            "evaluation": {"metrics": ["cider"]},
        }
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("trained")
    return train(config(folder), folder).folder


@pytest.fixture
def damaged(trained):
    """Damage a file of the run for a while: damaged(name, content), None takes it away."""
    before = {}

    def change(name, content):
        path = trained / name
        if path not in before:
            before[path] = path.read_bytes()
        path.unlink() if content is None else path.write_bytes(content)
        return path

    yield change
    for path, content in before.items():
        path.write_bytes(content)


def every_damage(content):
    """A file missing, empty, cut after each byte, and with a bit flipped in each byte: the lowest and the highest."""
    yield None
    for place in range(len(content)):
        yield content[:place]
        for bit in (1, 128):
            yield content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :]


def refusal(function, *arguments):
    """What the caller is told; None where nothing was wrong."""
    try:
        function(*arguments)
    except SeqmixerError as error:
        return str(error)
    return None


def outcome(folder):
    """What a user gets of a run: its weights and what it writes."""
    run = load(folder)
    written = [each.hypotheses for each in write(run, SOURCES, Search())]
    return {name: weight.tolist() for name, weight in run.model.state_dict().items()}, written


@pytest.mark.parametrize("name", ["task.json", "source.vocab", "target.vocab", "manifest.json"])
def test_a_file_damaged_at_any_byte_is_refused_in_one_line_or_makes_no_difference(trained, damaged, name):
    good = outcome(trained)
    refused = 0
    for content in every_damage((trained / name).read_bytes()):
        damaged(name, content)
        message = refusal(load, trained)
        if message is None:
            assert outcome(trained) == good
        else:
            assert "\n" not in message
            assert str(trained) in message
            refused += 1
    assert refused


def test_a_config_damaged_at_any_byte_is_refused_or_the_model_is_the_same(trained, damaged):
    good = outcome(trained)
    content = (trained / "config.toml").read_bytes()
    for bad in list(every_damage(content))[::7]:  # a config is long
        damaged("config.toml", bad)
        message = refusal(load, trained)
        assert "\n" not in (message or "")
        assert message or outcome(trained) == good


@pytest.mark.parametrize("which", ["last", "best"])
@pytest.mark.parametrize("name", ["manifest.json", "state.json", "tensors.safetensors"])
@pytest.mark.filterwarnings("ignore:.*looking for the checkpoint before it")
def test_a_checkpoint_damaged_at_any_byte_is_never_taken_for_a_whole_one(trained, damaged, which, name):
    """The length of the header, the header and the numbers of tensors.safetensors alike."""
    whole = checkpoint.load(trained / which)[1]
    before = checkpoint.load(trained / f"{which}.1")[1]
    assert before["epoch"] < whole["epoch"]
    content = (trained / which / name).read_bytes()
    damages = list(every_damage(content))
    for bad in damages[:600] + damages[600::61]:  # of tensors.safetensors all of the header's beginning
        damaged(f"{which}/{name}", bad)
        assert checkpoint.load(trained / which)[1] == before


@pytest.mark.filterwarnings("ignore:.*looking for the checkpoint before it")
@pytest.mark.parametrize("name", ["manifest.json", "state.json", "tensors.safetensors"])
def test_a_run_that_goes_on_from_the_checkpoint_before_ends_as_it_would_have(tmp_path, name):
    whole = train(config(tmp_path, epochs=3), tmp_path / "whole").folder
    train(config(tmp_path), tmp_path)
    path = tmp_path / "run/last" / name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.warns(UserWarning, match=re.escape(f"{path.parent}: damaged: ")):
        train(config(tmp_path, epochs=3), tmp_path)
    ended, wanted = (checkpoint.load(folder / "last")[0] for folder in (tmp_path / "run", whole))
    assert all(torch.equal(ended[key], wanted[key]) for key in wanted)
    assert [event["valid"] for event in read_log(tmp_path / "run")] == [event["valid"] for event in read_log(whole)]


def test_document_frequencies_damaged_at_any_byte_are_refused(trained, damaged):
    content = (trained / "cider.safetensors").read_bytes()
    assert DocumentFrequencies.load(trained / "cider.safetensors")
    for bad in list(every_damage(content))[::5]:
        path = damaged("cider.safetensors", bad)
        with pytest.raises(DataError, match=r"^[^\n]*; (delete it to have it made anew|`DocumentF.* makes one)$"):
            DocumentFrequencies.load(path)


def test_a_flipped_bit_among_document_frequencies_is_named(trained, damaged):
    content = bytearray((trained / "cider.safetensors").read_bytes())
    content[-3] ^= 1
    path = damaged("cider.safetensors", bytes(content))
    with pytest.raises(DataError) as error:
        load(trained).evaluate()
    assert str(error.value) == f"{path}: damaged: it is not what was written; delete it to have it made anew"


def test_a_log_damaged_at_any_byte_is_read_or_refused_with_its_line(trained, damaged):
    content = (trained / "log.jsonl").read_bytes()
    line = r":[12]: (no event of a run|epoch \d+ after epoch \d+); the log is damaged: .*"
    for bad in every_damage(content):
        path = damaged("log.jsonl", bad)
        message = refusal(read_log, trained)
        assert message is None or re.fullmatch(re.escape(str(path)) + line, message)
        assert message or len(read_log(trained)) <= 2


def test_lines_of_a_log_in_another_order_are_named(trained, damaged):
    first, second = (trained / "log.jsonl").read_bytes().splitlines(keepends=True)
    patience = b'{"event": "patience", "epoch": 1}\n'
    damaged("log.jsonl", patience + first + patience + second)
    assert len(read_log(trained)) == 4
    for lines, number, epoch, latest in [
        ((second, first), 2, 1, 2),
        ((first, first, second), 2, 1, 1),
        ((first, second, patience), 3, 1, 2),
        ((patience.replace(b"1", b"2"), first, second), 2, 1, 2),
    ]:
        path = damaged("log.jsonl", b"".join(lines))
        what = f"epoch {epoch} after epoch {latest}; the log is damaged: put its lines in order, one for each epoch"
        assert refusal(read_log, trained) == f"{path}:{number}: {what}"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "target.vocab",
            b"<pad>\n<s>\n</s>\n<unk>\nA\n",
            "target.vocab is not what was written; fetch the run again, or begin another (--set name=...)",
        ),
        ("source.vocab", None, "source.vocab is missing; fetch the run again, or begin another (--set name=...)"),
        ("manifest.json", b"[1]", "manifest.json is damaged; fetch the run again, or delete that file"),
        ("config.toml", None, "not a run folder (no config.toml); `seqmixer train` makes one"),
    ],
)
def test_what_was_damaged_is_named(trained, damaged, name, content, message):
    path = damaged(name, content)
    with pytest.raises(RunError) as error:
        load(trained)
    assert str(error.value) in (f"{trained}/{message}", f"{path.parent}: {message}")


@pytest.mark.parametrize(("old", "new", "what"), [("window = 5", "window = 3", "[model]"), ("= 6", "= 5", "[data]")])
def test_settings_that_the_weights_depend_on_may_not_be_edited(trained, damaged, old, new, what):
    text = (trained / "config.toml").read_text()
    assert old in text
    damaged("config.toml", text.replace(old, new, 1).encode())
    with pytest.raises(RunError) as error:
        load(trained)
    assert str(error.value) == (
        f"{trained}/config.toml: {what} is not what the run was trained with; undo the change: of [data], [text], "
        "[model] and [evaluation] only data.folder and evaluation.batch_size may be edited"
    )


def test_a_moved_data_folder_may_be_edited(trained, damaged, tmp_path):
    config(tmp_path)
    text = (trained / "config.toml").read_text()
    damaged("config.toml", text.replace(str(trained.parent), str(tmp_path)).encode())
    assert load(trained).config.data.folder == str(tmp_path)


def test_a_run_without_its_config_is_not_gone_on_with(tmp_path):
    train(config(tmp_path), tmp_path)
    (tmp_path / "run/config.toml").unlink()
    with pytest.raises(RunError) as error:
        train(config(tmp_path, lr=0.5), tmp_path)
    assert str(error.value) == (
        f"{tmp_path / 'run'} holds a run without its config.toml; put that back, or choose another name"
    )


@pytest.mark.parametrize("name", ["config.toml", "log.jsonl", "best", "best/tensors.safetensors", "deep/er", ".lock"])
def test_links_out_of_a_run_folder_are_refused_before_anything_is_read_or_written(tmp_path, name):
    train(config(tmp_path), tmp_path)
    link, outside = tmp_path / "run" / name, tmp_path / "outside"
    link.parent.mkdir(exist_ok=True)
    outside.write_text("mine")
    if link.exists():
        link.rename(tmp_path / "away")
    link.symlink_to(outside)
    for use in (lambda: load(tmp_path / "run"), lambda: train(config(tmp_path, epochs=3), tmp_path)):
        with pytest.raises(RunError) as error:
            use()
        assert str(error.value) == (
            f"{link} is a link to {outside}, outside the run folder; put the file itself there (cp -rL copies a folder "
            "so), or delete the link"
        )
        assert outside.read_text() == "mine"


@pytest.mark.parametrize("target", ["c", "nothing"], ids=["to itself", "to nothing"])
def test_a_link_that_leads_nowhere_is_refused(tmp_path, target):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/c").symlink_to(target)
    with pytest.raises(RunError) as error:
        require_inside(tmp_path / "run")
    assert str(error.value) == f"{tmp_path / 'run/c'} is a link to {target}, where nothing is; delete it"


def test_what_may_change_between_resumes_are_settings():
    sections = {name: type(getattr(Config(), name)) for name in ("data", "evaluation", "reward", "training")}
    for name in MAY_CHANGE:
        table, last = name.split(".")
        assert last in sections[table].model_fields, name


def test_a_link_by_dots_is_a_link_out_and_a_link_within_is_none(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/b").write_text("")
    (tmp_path / "run/a").symlink_to("b")
    require_inside(tmp_path / "run")
    (tmp_path / "run/c").symlink_to("../run2")
    with pytest.raises(RunError, match=re.escape("run/c is a link to ../run2, outside the run folder")):
        require_inside(tmp_path / "run")


@pytest.mark.parametrize("name", ["../../outside", "/etc/hostname"])
def test_a_manifest_cannot_name_files_elsewhere(tmp_path, name):
    """Only names that are in the folder are looked at."""
    checkpoint.save(tmp_path / "best", {"w": torch.ones(1)}, {"epoch": 1})
    path = tmp_path / "best/manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), name: "0"}))
    with pytest.warns(UserWarning, match=f"damaged: {re.escape(name)} is missing"), pytest.raises(RunError):
        checkpoint.load(tmp_path / "best")


def test_a_folder_with_a_name_like_a_checkpoint_is_none(tmp_path):
    checkpoint.save(tmp_path / "best", {"w": torch.ones(1)}, {"epoch": 1})
    for name in ("best.1.bak", "best.2x", "best.old", "best.99999999999999999999"):
        (tmp_path / name).mkdir()
    assert [place.name for place in checkpoint.places(tmp_path / "best")] == ["best"]


def test_death_while_the_files_of_a_run_are_written_leaves_those_before(tmp_path, monkeypatch):
    train(config(tmp_path), tmp_path)
    good = outcome(tmp_path / "run")

    def died(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", died)
    with pytest.raises(KeyboardInterrupt):
        train(config(tmp_path, epochs=3), tmp_path)
    monkeypatch.undo()
    assert outcome(tmp_path / "run") == good
    train(config(tmp_path, epochs=3), tmp_path)


@pytest.fixture
def evil(trained, damaged, tmp_path, monkeypatch):
    """A run folder whose config names code, and that code."""
    monkeypatch.chdir(tmp_path)
    sys.modules.pop("evil", None)
    (tmp_path / "evil.py").write_text(
        "from pathlib import Path\nPath('imported').touch()\ndef reward(hypothesis, references): return 1.0\n"
    )
    text = (trained / "config.toml").read_text()
    damaged("config.toml", text.replace('name = "bleu"', 'name = "evil:reward"').encode())
    return trained


def test_no_command_imports_code_that_a_run_folder_names(evil, run, tmp_path):
    (tmp_path / "in").write_text("a b\n")
    for arguments in (
        ("evaluate", evil),
        ("generate", evil, tmp_path / "in"),
        ("compare", evil, evil),
        ("doctor", evil),
        ("doctor", evil / "config.toml"),
    ):
        code, out, err = run(*arguments)
        assert (code, err) == (0, ""), out
    assert not (tmp_path / "imported").exists()


def test_training_by_the_config_of_a_run_folder_asks_for_trust_if_it_names_code(evil, run, tmp_path):
    path = evil / "config.toml"
    code, _, err = run("train", path, "--out", tmp_path / "new")
    assert (code, err) == (
        2,
        f"seqmixer: {path} lies in a run folder and names the Python code 'evil:reward'; if that code is yours, "
        "add --trust\n",
    )
    assert not (tmp_path / "imported").exists()
    code, _, err = run(
        "train",
        path,
        "--out",
        tmp_path / "new",
        "--trust",
        "--set",
        "algorithm.name=reinforce",
        "--set",
        "training.epochs=1",
    )
    assert code == 0, err
    assert (tmp_path / "imported").exists()


def test_the_users_own_config_may_name_code(evil, tmp_path):
    own = tmp_path / "own.toml"
    own.write_text((evil / "config.toml").read_text())
    require_own_code(own, read_config(evil), trust=False)
    with pytest.raises(ConfigError):
        require_own_code(evil / "config.toml", read_config(evil), trust=False)


def test_folders_that_only_have_such_names_make_no_run_folder(evil, tmp_path):
    for name in ("last", "best"):
        (tmp_path / name).mkdir()
    (tmp_path / "own.toml").touch()
    require_own_code(tmp_path / "own.toml", read_config(evil), trust=False)
    (tmp_path / "best/state.json").touch()
    with pytest.raises(ConfigError):
        require_own_code(tmp_path / "own.toml", read_config(evil), trust=False)


@pytest.mark.parametrize(
    "name",
    ["best.1/state.json", "last.1/tensors.safetensors", "last.new/x", "manifest.json", "log.jsonl", "pretrained/x"],
)
def test_anything_of_a_run_makes_a_run_folder(evil, tmp_path, name):
    folder = tmp_path / "sent"
    (folder / name).parent.mkdir(parents=True)
    (folder / name).touch()
    with pytest.raises(ConfigError, match=r"lies in a run folder and names the Python code 'evil:reward'"):
        require_own_code(folder / "config.toml", read_config(evil), trust=False)
