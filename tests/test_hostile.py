"""A run folder from a stranger or a bad disk: its output is what it was, or there is one line and exit code 2.

Values of other types, tensors of other shapes, and flipped bits; with checksums made anew, where a stranger would.
"""

import json
import os
import random
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import tiny
from seqmixer.config import Config
from seqmixer.runs import train
from seqmixer.storage import checkpoint
from seqmixer.storage.identity import checksums

pytestmark = pytest.mark.filterwarnings("ignore")  # of a damaged checkpoint, and of transformers

SOURCES = ["a b c", "b c", "c d e a", "d", "e a b", "a c", "b d", "c e a"]
ODD = [None, "x", -1, 0, 10**30, 1.5, True, [], {}, ["x"], {"x": 1}, float("nan"), float("inf"), "x\n\x1b[31m"]


def config(folder, **model):
    for name, lines in (("a", SOURCES), ("b", [source.upper() for source in SOURCES])):
        (folder / name).write_text("\n".join(lines) + "\n")
    both = {split: ["a", "b"] for split in ("train", "valid", "test")}
    return Config.parse(
        {
            "name": "run",
            "data": {"task": "text", "folder": str(folder), "length": 6, **both},
            "model": model,
            "algorithm": {"name": "reinforce"},
            "training": {"epochs": 2, "batch_size": 4, "lr": 0.001, "threads": 1},
        }
    )


def made(folder, **model):
    run = train(config(folder, **model), folder / "runs").folder
    (folder / "run.toml").write_text((run / "config.toml").read_text().replace("epochs = 2", "epochs = 3"))
    (folder / "in").write_text("\n".join(SOURCES) + "\n")
    return folder


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    return made(tmp_path_factory.mktemp("own"), hidden=4)


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pretrained")
    path = tiny.saved("gpt2", folder / "model", tiny.byte_pieces(SOURCES), layers=1)
    return made(folder, name="huggingface", path=path)


@pytest.fixture
def use(run, tmp_path, monkeypatch):
    """use(folder, change, *commands): what the commands say of a copy of the run, changed. -> how many were refused"""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    def call(folder, change, *commands, same=True):
        refused = 0
        for command in commands:
            shutil.rmtree(tmp_path / "runs", ignore_errors=True)
            shutil.copytree(folder / "runs", tmp_path / "runs")
            change(tmp_path / "runs/run")
            code, out, err = run(*command(folder, tmp_path / "runs"))
            last = err.splitlines()[-1] if err else ""
            assert code in (0, 2), (code, err)
            assert "Traceback" not in err
            assert not any(letter < " " for letter in err.replace("\n", ""))
            if code:
                assert last.startswith("seqmixer: ")
                assert len([line for line in err.splitlines() if "warning: " not in line]) == 1
                refused += 1
            elif command is generate and same:
                assert out == written(run, folder) or "that is used" in err  # the model before the best one
        return refused

    return call


def generate(folder, runs):
    return "generate", runs / "run", folder / "in"


def resume(folder, runs):
    return "train", folder / "run.toml", "--out", runs


cache: dict[Path, str] = {}


def written(run, folder):
    if folder not in cache:
        code, out, err = run(*generate(folder, folder / "runs"))
        assert code == 0, err
        cache[folder] = out
    return cache[folder]


def reseal(run):
    """Make the checksums anew."""
    for folder in (run / "last", run / "best", run / "pretrained"):
        if folder.is_dir():
            checkpoint.seal(folder)
    if (run / "config.toml").is_file():
        seals = dict(checksums(run, Config.load(run / "config.toml")))
        (run / "manifest.json").write_text(json.dumps(seals))


def replaced(values, path, odd):
    """A copy of nested values with one other."""
    if not path:
        return odd
    copied = dict(values) if isinstance(values, dict) else list(values)
    copied[path[0]] = replaced(values[path[0]], path[1:], odd)
    return copied


def paths(values, path=()):
    yield path
    inner = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    for name, value in inner:
        yield from paths(value, (*path, name))


def odd_files(folder, names, seed=0):
    """Every value of each JSON file, replaced by an odd one."""
    draw = random.Random(seed)
    for name in names:
        values = json.loads((folder / "runs/run" / name).read_text())
        for path in paths(values):
            yield name, replaced(values, path, draw.choice(ODD))


def test_values_of_other_types_under_right_checksums(own, use):
    refused = total = 0
    for name, odd in odd_files(own, ["task.json", "last/state.json", "best/state.json"]):

        def change(run, name=name, odd=odd):
            (run / name).write_text(json.dumps(odd))
            reseal(run)

        refused += use(own, change, generate, resume)
        total += 2
    assert refused > total / 2


@pytest.mark.parametrize("odd", [-1, 0, 10_001, 2**31, 10**30])
def test_sizes_that_no_model_has(own, use, odd):
    """What a length of 2**31 asks for, some machines grant."""
    values = json.loads((own / "runs/run/task.json").read_text())
    for name in values["dimensions"]:

        def change(run, name=name):
            (run / "task.json").write_text(json.dumps(replaced(values, ("dimensions", name), odd)))
            reseal(run)

        assert use(own, change, generate) == 1


@pytest.mark.parametrize("name", ["manifest.json", "last/manifest.json", "best/manifest.json", "pretrained/tied.json"])
@pytest.mark.parametrize(
    "text", ["[" * 200_000, '{"a":' * 200_000, "[]", '{"task.json": 1}', "1" * 5000, "\0", "[[1]]"]
)
def test_json_of_other_kinds(pretrained, use, name, text):
    def change(run):
        (run / name).write_text(text)

    assert use(pretrained, change, resume, generate) >= (name in ("manifest.json", "pretrained/tied.json"))


@pytest.mark.parametrize(
    "text", ["a = " + "[" * 200_000, "a" + ".a" * 100_000 + " = 1", "a = 1", "[model]\nhidden = 1e99"]
)
def test_configs_of_other_kinds(own, use, text):
    def change(run):
        (run / "config.toml").write_text(text)

    assert use(own, change, resume, generate) == 2


def test_a_log_of_other_types(own, use):
    for i, odd in enumerate(ODD):
        events = [json.loads(line) for line in (own / "runs/run/log.jsonl").read_text().splitlines()]
        name = list(events[-1])[i % len(events[-1])]

        def change(run, events=events, name=name, odd=odd):
            lines = [*events[:-1], {**events[-1], name: odd}]
            (run / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

        use(own, change, resume)


@pytest.mark.parametrize("which", ["last", "best"])
def test_tensors_of_other_shapes_and_types_under_right_checksums(own, use, which):
    tensors = load_file(own / f"runs/run/{which}/tensors.safetensors")
    kinds = ("model.M_o", "optimizer.0.", "own.", "algorithm.", "means.", "random.") if which == "last" else ("M_o",)
    names = {next(name for name in tensors if name.startswith(kind)) for kind in kinds}
    odd = (
        lambda tensor: tensor.flatten()[:0].clone(),
        lambda tensor: torch.zeros(3, 2),
        lambda tensor: tensor.to(torch.int32),
        lambda tensor: None,
    )
    for name in sorted(names):
        for other in odd:
            changed = {key: tensor for key, tensor in tensors.items() if key != name}
            if other(tensors[name]) is not None:
                changed[name] = other(tensors[name])

            def change(run, changed=changed):
                save_file(changed, run / which / "tensors.safetensors")
                reseal(run)

            use(own, change, resume, generate)


@pytest.mark.parametrize("place", ["", "last", "best", "pretrained"])
@pytest.mark.timeout(120)
@pytest.mark.skipif(os.name != "posix", reason="FIFOs")
def test_a_fifo_is_never_waited_for(pretrained, use, place):
    def change(run):
        os.mkfifo(run / place / "fifo")

    assert use(pretrained, change, generate, resume) == 2


def test_flipped_bits_in_every_file(pretrained, own, use):
    """A model and a tokenizer of transformers are sealed like everything else."""
    draw = random.Random(0)
    for folder in (own, pretrained):
        for path in sorted((folder / "runs/run").rglob("*")):
            if not path.is_file() or path.name.startswith("."):
                continue
            name, content = path.relative_to(folder / "runs/run"), path.read_bytes()
            place, bit = draw.randrange(len(content)), draw.randrange(8)

            def change(run, name=name, content=content, place=place, bit=bit):
                flipped = bytes([content[place] ^ 1 << bit])
                (run / name).write_bytes(content[:place] + flipped + content[place + 1 :])

            refused = use(folder, change, generate)
            assert refused or name.parts[0] != "pretrained"


def test_a_network_described_otherwise_under_right_checksums(pretrained, use):
    """transformers says something else of each; it is one line."""
    for name, odd in list(odd_files(pretrained, ["pretrained/config.json", "pretrained/tokenizer_config.json"]))[::2]:

        def change(run, name=name, odd=odd):
            (run / name).write_text(json.dumps(odd))
            reseal(run)

        use(pretrained, change, generate, same=False)
