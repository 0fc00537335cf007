"""`seqmixer init`: what it finds in files, what it writes, and that it trains as written."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

from prose import prose, write_prose
from seqmixer.build import build_task
from seqmixer.config import Config
from seqmixer.data.vocab import Vocab
from seqmixer.errors import ConfigError, DataError
from seqmixer.init import find, plan
from seqmixer.init.files import raw, unspaced


def nobody(question):
    return ""


@pytest.fixture
def seconds(monkeypatch):
    """Says how long training takes, by the hidden size, in place of measuring it."""
    said = {}
    monkeypatch.setattr(
        sys.modules["seqmixer.init.plan"], "lasts", lambda config, task, size: said.get(config.model.hidden, 60.0)
    )
    return said


def made(paths, columns=(), spoken=(), ask=nobody, file="mine.toml"):
    return plan(find([Path(path) for path in paths], columns, ask), spoken, Path(file), ask)


def test_what_is_written_trains_as_it_is(tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys.modules["seqmixer.init.plan"], "HIDDEN", {"cpu": (8,)})
    write_prose(tmp_path, 90)
    code, out, _ = run("init", "all.de", "all.en")
    assert code == 0
    assert out.splitlines()[-1] == "mine.toml is written. Next: seqmixer train mine.toml"
    written = (tmp_path / "mine.toml").read_text()
    small = ["algorithm.xent_epochs=1", "algorithm.mixed_epochs=1", "training.threads=1"]
    code, out, _ = run("train", "mine.toml", *(word for each in small for word in ("--set", each)))
    assert code == 0
    assert out.startswith("runs/mine  sacrebleu ")
    test = (tmp_path / "runs/mine/test.ref.txt").read_text().splitlines()
    assert len(test) == 9
    assert set(test) <= {english for _, english in prose(90)}

    code, _, err = run("init", "all.de", "all.en", "--yes")
    assert (code, err) == (2, "seqmixer: mine.toml is there already; choose another --out, or remove it\n")
    assert (tmp_path / "mine.toml").read_text() == written


def test_each_choice_is_that_of_the_text(tmp_path, seconds):
    files = write_prose(tmp_path, 300)
    chosen = made(files)
    config = chosen.config
    assert config.text.languages == ("de", "en")
    assert (config.text.normalise, config.text.case, config.text.subwords) == ("NFC", "true", None)
    assert config.data.held_out == (16, 30)
    assert config.data.source_min_count == config.data.target_min_count == 2  # all words are there more than once
    assert config.evaluation.unk is False
    task = build_task(config.data, text=config.text)
    lengths = sorted(len(reference) for (reference,) in task.train.references)
    assert lengths[int(0.95 * len(lengths)) - 1] <= config.data.length <= lengths[int(0.95 * len(lengths))]
    assert config.metrics[0] == "sacrebleu"
    assert config.reward.name == "bleu"
    assert config.algorithm.schedule(config.data.length)[-1] == 0
    assert chosen.found[0] == "254 examples of text (16 more for validation, 30 for the test): raw text, de to en"
    assert not {"{", "}"} & {*chosen.toml}
    for line in chosen.toml.splitlines():
        assert len(line) <= 140, line


def test_sub_words_where_new_text_has_new_words(tmp_path, seconds):
    write_prose(tmp_path, 200)
    for name in ("all.de", "all.en"):
        lines = (tmp_path / name).read_text().splitlines()
        (tmp_path / name).write_text("".join(f"{line} Nr{i * 7919 % 1000}x.\n" for i, line in enumerate(lines)))
    chosen = made([tmp_path / "all.de", tmp_path / "all.en"])
    assert chosen.config.text.subwords == 1000
    assert chosen.config.data.target_min_count == 1
    unknown = Config.parse(
        {"data": chosen.config.data.model_dump() | {"target_min_count": 2}, "text": {"languages": ["de", "en"]}}
    )
    task = build_task(unknown.data, text=unknown.text)
    vocab = Vocab.build(
        (" ".join(task.target_vocab.words_of(meta["references"][0])) for meta in task.train.meta), min_count=2
    )
    words = [word for meta in task.test.meta for word in task.target_vocab.words_of(meta["references"][0])]
    share = sum(word not in vocab.words for word in words) / len(words)
    assert f"{share:.1%} of the target words" in chosen.found[1]


def test_the_largest_model_that_trains_in_time(tmp_path, seconds):
    files = write_prose(tmp_path, 60)
    seconds |= {256: 481.0, 128: 100.0}
    assert made(files).config.model.hidden == 128
    seconds |= {256: 479.0}
    assert made(files).config.model.hidden == 256
    seconds |= {256: 10_000.0, 128: 5_000.0}
    slow = made(files)
    assert slow.config.model.hidden == 128
    assert "about 1 h 23 min here" in slow.toml


def test_files_for_validation_and_test_are_found_beside_those_for_training(tmp_path, seconds):
    for name in ("train", "dev", "test"):
        write_prose(tmp_path, 40, (f"{name}.de", f"{name}.en"))
    data = made([tmp_path / "train.de", tmp_path / "train.en"]).config.data
    assert (data.valid, data.test, data.held_out) == (("dev.de", "dev.en"), ("test.de", "test.en"), (0, 0))
    (tmp_path / "test.en").unlink()
    data = made([tmp_path / "train.de", tmp_path / "train.en"]).config.data
    assert (data.valid, data.test, data.held_out) == (("dev.de", "dev.en"), (), (0, 4))


def test_tables(tmp_path, seconds):
    rows = prose(60)
    (tmp_path / "a.tsv").write_text("".join(f"{german}\t{english}\n" for german, english in rows))
    data = made([tmp_path / "a.tsv"], spoken=["de", "en"]).config.data
    assert (data.train, data.columns, data.held_out) == (("a.tsv",), ("1", "2"), (4, 6))
    lines = [json.dumps({"id": i, "de": german, "en": english, "by": "x"}) for i, (german, english) in enumerate(rows)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(ConfigError, match=r"a\.jsonl has the columns de, en, by; say which: --columns SOURCE,TARGET"):
        made([tmp_path / "a.jsonl"])
    config = made([tmp_path / "a.jsonl"], ask=lambda question: "de en").config
    assert (config.data.columns, config.text.languages) == (("de", "en"), ("de", "en"))
    assert made([tmp_path / "a.jsonl"], ["en", "de"]).config.text.languages == ("en", "de")


def test_tokenised_text_stays_as_it_is(tmp_path, seconds):
    write_prose(tmp_path, 60)
    for name in ("all.de", "all.en"):
        text = (tmp_path / name).read_text()
        (tmp_path / name).write_text("".join(f" {letter}" if letter in ".,!?" else letter for letter in text))
    chosen = made([tmp_path / "all.de", tmp_path / "all.en"]).config
    assert not chosen.text.raw
    assert chosen.metrics == ("bleu",)


def test_captions(tmp_path, seconds):
    numpy.save(tmp_path / "features.npy", numpy.ones((60, 3), "float32"))
    images = [
        {"id": f"{i}", "row": i, "split": "test" if i < 9 else "val" if i < 20 else "train", "captions": [text, text]}
        for i, (_, text) in enumerate(prose(60))
    ]
    (tmp_path / "captions.json").write_text(json.dumps(images))
    chosen = made([tmp_path / "features.npy", tmp_path / "captions.json"], spoken=["en"])
    assert chosen.config.data.task == "captions"
    assert chosen.config.text.languages == ("en",)
    assert (chosen.config.reward.name, chosen.config.reward.eos, chosen.config.metrics) == (
        "cider",
        True,
        ("cider", "sacrebleu"),
    )
    assert chosen.found[0] == "40 examples of captions: raw text, en"


def test_summaries_are_rewarded_by_an_f1(tmp_path, seconds):
    write_prose(tmp_path, 60)
    (tmp_path / "all.en").write_text(
        "".join(f"{english.split()[0]} {english.split()[-1]}\n" for _, english in prose(60))
    )
    assert made([tmp_path / "all.de", tmp_path / "all.en"]).config.reward.name == "rouge_l"


def test_text_without_spaces_is_spelled(tmp_path, seconds):
    letters = random.Random(1)
    for name in ("a.zh", "a.ja"):
        lines = ("".join(letters.choices("我你他爱看吃书鱼茶在家里的了", k=20)) for _ in range(60))
        (tmp_path / name).write_text("".join(f"{line}。\n" for line in lines), encoding="utf-8")
    text = made([tmp_path / "a.zh", tmp_path / "a.ja"]).config.text
    assert (text.languages, text.subwords, text.normalise) == ((), 1000, "NFC")


def test_raw_text_is_told_from_words():
    assert raw([english for _, english in prose(20)])
    assert not raw(["the dog , mr. x says , runs .", "no punctuation"])
    assert not raw([])
    assert unspaced(["我爱看书鱼茶在家里的了我爱看书鱼茶在家里的了"])
    assert not unspaced([german for german, _ in prose(20)])


def test_what_cannot_be_is_said(tmp_path, run, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_prose(tmp_path, 20)
    for words, message in {
        ("all.de", "none.en"): "none.en: no such file",
        ("all.de",): "all.de is one file of text; name the source and the target, or a table: .tsv .csv .jsonl",
        ("all.de", "all.en"): "all.de, all.en: 20 examples; it takes 30, and better thousands, to train",
        (): "name your files: seqmixer init train.de train.en, or talks.tsv, or captions.json features.npz",
        ("all.de", "f.npy", "g.npy"): None,
    }.items():
        for name in ("f.npy", "g.npy"):
            (tmp_path / name).touch()
        code, _, err = run("init", *words)
        assert code == 2
        if message:
            assert err == f"seqmixer: {message}\n"
    assert not (tmp_path / "mine.toml").exists()
    with pytest.raises(DataError, match="no such file"):
        find([tmp_path / "x"], (), nobody)


def test_odd_names_are_kept(tmp_path, seconds):
    files = write_prose(tmp_path, 40, ('a "b\\ é.de', "a 'c' #.en"))
    assert made(files).config.data.train == tuple(file.name for file in files)


def test_on_a_terminal_it_asks(tmp_path):
    pty = pytest.importorskip("pty", reason="this system has no pseudo-terminals")
    write_prose(tmp_path, 40, ("a.txt", "b.txt"))
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "seqmixer", "init", "--out", str(tmp_path / "asked.toml")]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    for question, answer in (
        (b"features.npz):", f"{tmp_path}/a.txt {tmp_path}/b.txt\n".encode()),
        (b"in English):", b"de,en\n"),
    ):
        while question not in shown:
            shown += os.read(ours, 1000)
        os.write(ours, answer)
    try:
        while chunk := os.read(ours, 1000):
            shown += chunk
    except OSError:  # the other side is closed
        pass
    assert process.wait() == 0, shown
    assert Config.load(tmp_path / "asked.toml").text.languages == ("de", "en")
