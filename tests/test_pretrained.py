"""Runs of pretrained models, from the command line to a folder that transformers opens by itself."""

import functools
import io
import json
import os
import re
import runpy
import shutil
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import tiny
from seqmixer.build import Metrics, build_task
from seqmixer.config import Config
from seqmixer.data import toy
from seqmixer.decoding import shift
from seqmixer.errors import ConfigError, DataError, Interrupted, RunError
from seqmixer.models import huggingface
from seqmixer.runs import load, task_of, train
from seqmixer.storage import checkpoint
from seqmixer.storage.pretrained import export, require_positions, vocabs
from seqmixer.training import Callback, epochs, read_log
from seqmixer.types import Rollout

ROOT = Path(__file__).parents[1]
QUICK = [
    "training.batch_size=8", "training.lr=1e-3", "algorithm.xent_epochs=1", "algorithm.mixed_epochs=1",
    "algorithm.delta=20", "training.threads=1",
]  # fmt: skip


@pytest.fixture(scope="module")
def lines():
    """The text of the built-in tasks, for tokenizers that know its words."""
    tasks = [made(1, train=60, valid=5, test=5) for made in (toy.summarization, toy.translation)]
    return [str(text) for task in tasks for meta in task.train.meta for text in (meta["source"], *meta["references"])]


@pytest.fixture
def small(monkeypatch, tmp_path):
    """The built-in tasks with fewer sentences, in an empty folder."""
    for name in ("translation", "summarization"):
        monkeypatch.setattr(toy, name, functools.partial(getattr(toy, name), train=16, valid=4, test=4))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def folder(kind, lines, where="model"):
    if kind == "gpt2":
        tokenizer = tiny.byte_pieces(lines, size=400)
    else:
        tokenizer = tiny.sentencepieces(lines, size=200, bos=kind == "bart", begins=kind == "llama")
    return tiny.saved(kind, where, tokenizer, layers=1)


def quick():
    return [word for setting in QUICK for word in ("--set", setting)]


def config(kind, lines, **settings):
    """A run of two epochs, XENT and MIXER."""
    values = {
        "data": {"task": "toy-summarization", "length": 12, **settings.pop("data", {})},
        "model": {"name": "huggingface", "path": folder(kind, lines), **settings.pop("model", {})},
        "algorithm": {"name": "mixer", "xent_epochs": 1, "mixed_epochs": 1, "delta": 12},
        "reward": {"name": "rouge_l"},
        "training": {"batch_size": 8, "threads": 1, **settings.pop("training", {})},
        "evaluation": {"metrics": ["rouge_l"]},
    }
    return Config.parse({**values, **settings})


class Stopping(Callback):
    """Ctrl-C after so many batches."""

    def __init__(self, after):
        self.left = after

    def step(self, run):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGINT)


def test_t5_is_trained_from_a_folder_and_used_from_the_command_line(run, small, lines, monkeypatch):
    model = folder("t5", lines)

    code, out, err = run("train", "hf/t5-summarization", "--set", f"model.path={model}", *quick())
    assert code == 0, err
    assert out.startswith("runs/t5-summarization  rouge_l ")
    assert f"{small / model}: " in err
    assert "MIXER, XENT on the first s = 0 words" in err

    text = io.TextIOWrapper(io.BytesIO(b"india cuts prices\n\nchina to hold talks\n"))
    monkeypatch.setattr(sys, "stdin", text)
    code, out, err = run("generate", "runs/t5-summarization")
    assert (code, err) == (0, "")
    assert len(out.split("\n")) == 4
    assert out.split("\n")[1] == ""


@pytest.mark.parametrize(("name", "kind"), [("marian-translation", "marian"), ("gpt2-reward", "gpt2")])
def test_the_other_configs_run(run, small, lines, monkeypatch, name, kind):
    monkeypatch.syspath_prepend(ROOT / "examples")
    model = folder(kind, lines)

    code, out, err = run("train", f"hf/{name}", "--set", f"model.path={model}", *quick())

    assert code == 0, err
    assert out.startswith(f"runs/{name}  ")


@pytest.mark.parametrize(
    ("path", "kind"),
    [("t5_on_rouge", "t5"), ("marian_on_chrf", "marian"), ("gpt2_with_own_reward", "gpt2")],
)
def test_the_example_trains_a_tiny_model(small, lines, monkeypatch, capsys, path, kind):
    example = ROOT / "examples/hf" / f"{path}.py"
    assert len(example.read_text().splitlines()) <= 40
    monkeypatch.setattr(sys, "argv", [str(example), folder(kind, lines), "2"])

    runpy.run_path(str(example), run_name="__main__")

    float(capsys.readouterr().out)
    (log,) = Path("runs").glob("*/log.jsonl")
    first, second = (event["valid"]["perplexity"] for event in epochs(read_log(log.parent))[:2])  # of XENT
    assert second < first


def test_the_doctor_examines_what_training_would_do(run, small, lines):
    summarise = ["hf/t5-summarization", "--set", f"model.path={folder('t5', lines)}", *quick()]
    code, out, err = run("doctor", *summarise, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)["sections"]
    assert found["pre-flight"]["model"] == "the pretrained model model"
    assert (
        found["pre-flight"]["findings"][-1]["what"]
        == "cross entropy comes first, and this is the pretrained model model yet"
    )

    assert run("train", *summarise)[0] == 0
    trained = load(Path("runs/t5-summarization"))
    assert found["data"]["length"] == trained.dimensions.length
    assert found["data"]["unknown"]["train"] == trained.task().train.unknown_shares()
    shutil.rmtree("model")
    code, out, _ = run("doctor", "runs/t5-summarization", "--set", "training.epochs=3", "--json")
    assert json.loads(out)["sections"]["pre-flight"]["model"] == "the best model of runs/t5-summarization"


def test_the_doctor_says_that_a_model_has_too_few_positions(run, small, lines):
    overrides = [f"model.path={folder('bart', lines)}", "data.length=41"]
    settings = [word for setting in overrides for word in ("--set", setting)]
    code, out, err = run("doctor", "hf/t5-summarization", *settings, *quick())
    assert (code, err) == (2, "")
    assert re.search(
        r"^problem  model: the longest source has \d+ tokens and T = 41, but model has positions", out, re.M
    )


def test_a_data_card_counts_what_the_tokenizer_makes_of_the_text(run, small, lines):
    settings = ["--set", f"model.path={folder('t5', lines)}", "--json"]
    code, out, err = run("data", "card", "hf/t5-summarization", *settings)
    assert (code, err) == (0, "")
    card = json.loads(out)
    task = task_of(Config.load("hf/t5-summarization", ["model.path=model"]))
    assert card["length"] == task.length
    assert card["length"] > card["splits"]["train"]["target"]["longest"] + 1  # tokens, not words
    for side, vocab in (("source", task.source_vocab), ("target", task.target_vocab)):
        used = card["vocabulary"][side][-1]
        assert used["words"] == len(vocab) - 4
        assert used["unknown"]["train"] == task.train.unknown_shares()[side] < 0.1


def logits(network, tokenizer, prefix=""):
    ids = tokenizer(f"{prefix}india cuts prices", return_tensors="pt").input_ids
    more = {"decoder_input_ids": torch.tensor([[0, 7, 8, 9]])} if network.config.is_encoder_decoder else {}
    with torch.no_grad():
        return network(input_ids=ids, **more).logits


@pytest.mark.parametrize("lora_rank", [0, 2])
@pytest.mark.parametrize("kind", ["t5", "llama"])
def test_the_folder_of_a_run_opens_in_transformers_with_the_best_weights(small, lines, kind, lora_rank):
    from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

    run = train(config(kind, lines, model={"lora_rank": lora_rank}, training={"lr": 0.01}))

    kept = run.folder / "pretrained"
    made = AutoModelForSeq2SeqLM if kind == "t5" else AutoModelForCausalLM
    network, tokenizer = made.from_pretrained(kept), AutoTokenizer.from_pretrained(kept)
    before = made.from_pretrained("model")
    assert not list(run.folder.glob("**/*.bin")) + list(run.folder.glob("**/*.pt"))
    torch.testing.assert_close(logits(network, tokenizer), logits(run.model.network, tokenizer), atol=1e-4, rtol=1e-4)
    assert (logits(network, tokenizer) - logits(before, tokenizer)).abs().max() > 1e-2


def test_a_run_needs_the_first_model_no_more(small, lines):
    run = train(config("t5", lines))
    shutil.rmtree("model")
    shutil.move("runs", "elsewhere")

    again = load(Path("elsewhere") / run.folder.name)

    assert again.evaluate().score == pytest.approx(run.evaluate().score)
    batch = torch.tensor([[7, 8, 2]])
    torch.testing.assert_close(
        again.model.unroll(shift(batch), again.model.encode(batch)),
        run.model.unroll(shift(batch), run.model.encode(batch)),
    )


def test_a_stopped_run_goes_on_without_the_first_model(small, lines):
    settings = config("t5", lines)
    settings = settings.model_copy(update={"model": settings.model.model_copy(update={"path": str(small / "model")})})
    whole = train(settings, Path("elsewhere"))
    with pytest.raises(Interrupted):
        train(settings, callbacks=[Stopping(after=1)])
    shutil.rmtree("model")

    resumed = train(settings)

    assert resumed.evaluate().score == whole.evaluate().score
    for name, weight in resumed.model.state_dict().items():
        assert torch.equal(weight, whole.model.state_dict()[name]), name


def test_a_run_folder_that_lacks_something_is_named(small, lines):
    settings = config("t5", lines)
    with pytest.raises(Interrupted):
        train(settings, callbacks=[Stopping(after=1)])

    def says():
        with pytest.raises((RunError, ConfigError)) as caught:
            train(settings)
        return str(caught.value)

    (small / "runs/run/pretrained/tied.json").write_text("[")
    again = "fetch the run again, or begin another (--set name=...)"
    assert says() == f"runs/run/pretrained is damaged: tied.json is not what was written; {again}"
    (small / "runs/run/pretrained/manifest.json").unlink()
    assert says() == "runs/run/pretrained/tied.json:1: not JSON (EOF while parsing a list at column 1)"
    shutil.rmtree(small / "runs/run/pretrained")
    assert says() == "runs/run: pretrained/ is missing; this is no complete run folder"


def test_weights_that_the_file_holds_apart_stay_apart(small, lines):
    """As in T5 1.1 and flan-t5, which transformers would tie if it had only the config to go by."""
    settings = config("t5", lines, model={"lora_rank": 0})
    network = huggingface.load(huggingface.Pretrained("model", vocabs(settings)[1].ids)).network
    network.lm_head.weight = torch.nn.Parameter(torch.randn_like(network.lm_head.weight))
    network.save_pretrained("model")

    run = train(settings)

    weights, _ = checkpoint.load(run.folder / "best")
    assert not torch.equal(weights["network.lm_head.weight"], weights["network.shared.weight"])
    torch.testing.assert_close(run.model.network.lm_head.weight, weights["network.lm_head.weight"])
    torch.testing.assert_close(run.model.network.shared.weight, weights["network.shared.weight"])
    assert json.loads((run.folder / "pretrained/tied.json").read_text()) == [
        "network.decoder.embed_tokens.weight", "network.encoder.embed_tokens.weight",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["t5", "gpt2"])
def test_a_stopped_run_goes_on_as_if_it_had_not_been(small, lines, kind):
    data = {"source_length": 12, "suffix": " so:"} if kind == "gpt2" else {}
    settings = config(kind, lines, data=data)
    whole = train(settings, Path("whole"))
    with pytest.raises(Interrupted):
        train(settings, Path("stopped"), [Stopping(after=3)])
    resumed = train(settings, Path("stopped"))

    for name in ("scores.json", "test.txt", "samples.txt"):
        assert (whole.folder / name).read_text() == (resumed.folder / name).read_text()
    for name, weight in whole.model.state_dict().items():
        assert torch.equal(weight, resumed.model.state_dict()[name]), name


def test_a_run_can_start_from_another_run(small, lines):
    first = train(config("t5", lines))

    second = train(config("t5", lines, name="second", training={"start": str(first.folder), "lr": 1e-9}))

    for name, weight in first.model.state_dict().items():
        torch.testing.assert_close(second.model.state_dict()[name], weight, atol=1e-5, rtol=0)


def test_rewards_on_text_see_what_the_tokenizer_puts_together(small, lines, monkeypatch):
    (small / "seen.py").write_text(
        "SEEN = []\ndef note(hypothesis, references, source):\n    SEEN.append((hypothesis, references, source))\n    return 1.0\n"
    )
    settings = config("t5", lines, reward={"name": "seen:note"}, data={"prefix": "summarize: "})
    task = build_task(settings.data, vocabs(settings))
    reward = Metrics(settings, task).reward
    target = torch.tensor([task.valid.references[0][0]])

    reward(Rollout(target, target.unsqueeze(1), meta=task.valid.meta[:1]))

    import seen

    meta = task.valid.meta[0]
    assert [(meta["references"][0], meta["references"], meta["source"])] == seen.SEEN
    assert not meta["source"].startswith("summarize")
    prefix = vocabs(settings)[1].encode("summarize:")[:-1]
    assert task.valid.sources[0][: len(prefix)] == prefix


def test_what_cannot_be_is_said_in_one_line(run, small, lines, monkeypatch):
    model = folder("bart", lines)
    toml = "hf/t5-summarization"
    (small / "captions.toml").write_text(
        '[data]\ntask = "toy-captioning"\n[model]\nname = "huggingface"\npath = "model"\n'
    )
    (small / "nothing.toml").write_text('[model]\nname = "huggingface"\n')
    (small / "lstm.toml").write_text('[model]\nname = "lstm"\npath = "model"\n')
    (small / "columns.toml").write_text('[data]\ntask = "dataset"\ncolumns = ["a"]\n')

    def says(*words):
        code, out, err = run("train", *words)
        assert (code, out) == (2, "")
        return err

    assert says("captions.toml") == (
        "seqmixer: captions.toml: model.name = 'huggingface' reads text, but data.task = 'toy-captioning' has images\n"
    )
    assert says("nothing.toml") == (
        "seqmixer: nothing.toml: model.path is missing; with model.name = 'huggingface' it names a folder or a model of the hub\n"
    )
    assert (
        says("lstm.toml")
        == "seqmixer: lstm.toml: model.path is for model.name = 'huggingface', not 'lstm'; remove it\n"
    )
    for setting, value in (("lora_rank", 2), ("checkpointing", True), ("dtype", "bfloat16")):
        message = f"config: model.{setting} is for model.name = 'huggingface', not 'lstm'; remove it"
        with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
            Config.parse({"model": {setting: value}})
    assert says("columns.toml") == (
        "seqmixer: columns.toml: data.columns names 1 columns; with data.task = 'dataset' it names the column of the "
        "sources and at least one of references\n"
    )
    assert says(toml, "--set", f"model.path={model}", "--set", "data.suffix=so") == (
        f"seqmixer: data.suffix = 'so' stands between a prompt and its target; '{small / model}' has an encoder\n"
    )
    assert says(toml, "--set", f"model.path={model}", "--set", "data.length=41") == (
        f"seqmixer: the longest source has {longest(model)} tokens and T = 41, but {small / model} has positions for 40; "
        "set data.source_length (and data.length)\n"
    )
    assert not (small / "runs/t5-summarization/config.toml").exists()


@pytest.mark.parametrize(("kind", "together"), [("bart", False), ("gpt2", True)])
def test_positions_are_shared_by_prompt_and_target_only_in_a_decoder(small, lines, kind, together):
    settings = config(kind, lines, data={"source_length": 20})
    task = build_task(settings.data, vocabs(settings))
    taken = max(len(source) for split in (task.train, task.valid, task.test) for source in split.sources)
    positions = 120 if together else 40
    most = positions - taken if together else positions

    require_positions("model", replace(task, length=most))
    with pytest.raises(DataError) as caught:
        require_positions("model", replace(task, length=most + 1))
    assert str(caught.value) == (
        f"the longest source has {taken} tokens and T = {most + 1}, but model has positions for {positions}; "
        "set data.source_length (and data.length)"
    )


def longest(model):
    settings = Config.load("hf/t5-summarization", [f"model.path={model}"])
    task = build_task(settings.data, vocabs(settings))
    return max(len(source) for split in (task.train, task.valid, task.test) for source in split.sources)


@pytest.mark.parametrize(
    ("hidden", "overrides", "message"),
    [
        ("transformers", [], "a model of Hugging Face needs transformers; install it with: pip install 'seqmixer[hf]'"),
        ("peft", ["model.lora_rank=2"], "model.lora_rank needs peft; install it with: pip install 'seqmixer[hf]'"),
        ("datasets", ["data.task=dataset", 'data.columns=["a", "b"]'],
         "data.task = 'dataset' needs datasets; install it with: pip install 'seqmixer[hf]'"),
    ],
)  # fmt: skip
def test_without_the_extra_one_line_names_it(run, small, lines, monkeypatch, hidden, overrides, message):
    model = folder("t5", lines)
    for name in [name for name in sys.modules if name == hidden or name.startswith(f"{hidden}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, hidden, None)

    words = [word for setting in (f"model.path={model}", *overrides) for word in ("--set", setting)]
    code, out, err = run("train", "hf/t5-summarization", *words, *quick())

    assert (code, out, err) == (2, "", f"seqmixer: {message}\n")


@pytest.mark.parametrize("path", ["./nowhere", "/no/where", "a/b/c", "models/mistyped"])
def test_what_looks_like_a_folder_is_not_looked_for_on_the_hub(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    config = Config.parse({"model": {"name": "huggingface", "path": path}})

    with pytest.raises(ConfigError) as refused:
        vocabs(config)

    assert str(refused.value) == f"model.path = {path!r}: no such folder; a name of the hub is NAME or OWNER/NAME"


def test_every_file_of_the_network_and_tokenizer_is_sealed(small, lines):
    kept = train(config("gpt2", lines)).folder / "pretrained"
    load(kept.parent)
    text = (kept / "tokenizer.json").read_text()
    vocab = json.loads(text)["model"]["vocab"]
    one, other = [f'"{word}": {vocab[word]}' for word in list(vocab)[-2:]]
    damages = {
        "tokenizer.json": text.replace(one, "x").replace(other, f"{other.split(': ')[0]}: {one.split(': ')[1]}"),
        "config.json": (kept / "config.json").read_text().replace("1e-05", "1e-01"),
        "model.safetensors": "",
        "tied.json": "[]\n",
        "more.json": "{}",
    }
    for name, damage in damages.items():
        before = (kept / name).read_bytes() if (kept / name).exists() else None
        assert before != damage.encode()
        (kept / name).write_text(damage)
        with pytest.raises(RunError) as error:
            load(kept.parent)
        again = "fetch the run again, or begin another (--set name=...)"
        assert str(error.value) == f"{kept} is damaged: {name} is not what was written; {again}"
        (kept / name).unlink() if before is None else (kept / name).write_bytes(before)
    (kept / "README.md").write_text("A card is for people.")
    load(kept.parent)


def test_a_run_killed_at_any_point_of_its_export_is_opened_and_repaired(small, lines, monkeypatch):
    settings = config("gpt2", lines)
    run = train(settings)
    good = {path.name: path.read_bytes() for path in (run.folder / "pretrained").iterdir()}
    shutil.copytree(run.folder, small / "whole")

    def dying(step):
        left = [step]

        def killed(real):
            def call(*arguments, **options):
                left[0] -= 1
                if left[0] == 0:
                    raise KeyboardInterrupt
                return real(*arguments, **options)

            return call

        for module, name in ((os, "rename"), (os, "replace"), (os, "fsync"), (shutil, "rmtree"), (shutil, "copytree")):
            monkeypatch.setattr(module, name, killed(getattr(module, name)))

    step = 0
    while True:
        step += 1
        shutil.rmtree(run.folder)
        shutil.copytree(small / "whole", run.folder)
        dying(step)
        try:
            export(settings.model, run.folder)
            break
        except KeyboardInterrupt:
            pass
        finally:
            monkeypatch.undo()
            monkeypatch.chdir(small)
        load(Path("runs/run"))
        export(settings.model, Path("runs/run"))
        assert {path.name: path.read_bytes() for path in Path("runs/run/pretrained").iterdir()} == good
        assert not list(Path("runs/run").glob("pretrained.*"))
    assert step > 8


def test_a_run_of_version_0_1_has_no_manifest_of_its_network_and_opens(small, lines):
    run = train(config("gpt2", lines))
    (run.folder / "pretrained/manifest.json").unlink()
    assert load(run.folder).evaluate().score == run.evaluate().score
