"""Runs on raw text: what is trained, scored, written and shown is the same text that people read."""

import json
import shutil
import subprocess
import sys

import numpy
import pytest
import sacrebleu

from prose import prose, write_prose
from seqmixer.config import Config
from seqmixer.errors import ConfigError, RunError
from seqmixer.evaluation import read_sentences
from seqmixer.experiments.compare import compare
from seqmixer.runs import load, train

TEXT = {"normalise": "NFC", "languages": ["de", "en"], "case": "true", "subwords": 110}


def config(folder, name="run", text=TEXT, epochs=6, **data):
    write_prose(folder, 80)
    values = {
        "name": name,
        "data": {"task": "text", "folder": str(folder), "train": ["all.de", "all.en"], "held_out": [8, 16], **data},
        "text": text,
        "model": {"hidden": 32},
        "algorithm": {"name": "xent"},
        "training": {"epochs": epochs, "batch_size": 8, "lr": 0.02, "threads": 1},
    }
    return Config.parse(values)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("raw")
    train(config(folder / "data"), folder)
    return folder / "run"


def sacrebleu_says(*arguments):
    """What its own command prints, as {name: score}."""
    command = [sys.executable, "-m", "sacrebleu", *map(str, arguments), "--width", "6", "--format", "json"]
    said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {each["name"]: each["score"] for each in (said if isinstance(said, list) else [said])}


def test_the_command_of_sacrebleu_gives_the_score_that_evaluate_prints(trained, run):
    said = sacrebleu_says(trained / "test.ref.txt", "-i", trained / "test.txt", "-m", "bleu", "chrf")
    assert said["BLEU"] > 5
    code, out, _ = run("evaluate", trained)
    assert code == 0
    printed = {line.split("  ")[1].split("|")[1]: line.split()[0] for line in out.splitlines() if "sacrebleu|" in line}
    assert printed == {"bleu": f"{said['BLEU']:.2f}", "chrf": f"{said['chrF2']:.2f}"}
    scores = json.loads((trained / "scores.json").read_text())["others"]
    assert scores["sacrebleu"]["test"] == pytest.approx(said["BLEU"], abs=1e-4)
    assert scores["sacrebleu_chrf"]["test"] == pytest.approx(said["chrF2"], abs=1e-4)
    standard = json.loads(run("evaluate", trained, "--standard", "--json")[1])["scores"][-2:]
    assert [each["score"] for each in standard] == pytest.approx([said["BLEU"], said["chrF2"]], abs=1e-4)
    assert "tok:13a" in standard[0]["signature"]


def test_the_files_are_what_people_read(trained):
    pairs = dict(prose(80))
    hypotheses, references = ((trained / name).read_text().splitlines() for name in ("test.txt", "test.ref.txt"))
    assert len(hypotheses) == len(references) == 16
    assert set(references) <= set(pairs.values())
    assert all(text[:1].isupper() or not text[:1].isalpha() for text in hypotheses)
    assert not {"▁", " .", " ,", " 's"} & {
        mark for mark in ("▁", " .", " ,", " 's") for text in hypotheses if mark in text
    }
    shown = read_sentences(trained)
    assert shown.hypotheses == hypotheses
    assert [pairs[source] for source in shown.sources] == references
    assert [each.metric for each in shown.scored] == ["bleu", "sacrebleu", "sacrebleu_chrf"]


def test_a_run_reads_raw_text_and_writes_readable_text(trained, run, tmp_path):
    opened = load(trained)
    shown = read_sentences(trained)
    assert opened.generate(shown.sources) == shown.hypotheses
    (tmp_path / "in.txt").write_text("\n".join(shown.sources[:3]) + "\n")
    assert run("generate", trained, tmp_path / "in.txt")[1].splitlines() == shown.hypotheses[:3]

    explained = opened.explain("Der Hund läuft im Park.", reference="The dog runs in the park.")
    assert "".join(explained.words[:-1]).replace("▁", " ").strip() == "der Hund läuft im Park ."
    assert explained.greedy.text == opened.generate(["Der Hund läuft im Park."])[0]
    assert any(word.startswith("▁") for word in explained.greedy.words)
    assert explained.greedy.reward is not None
    assert opened.explain("Der ☃ läuft.").unknown.count(True) == 1


def test_an_interrupted_run_reads_its_own_sub_words(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    shutil.copytree(trained.parent / "data", tmp_path / "data")
    again = train(config(tmp_path / "data", epochs=7), tmp_path)
    assert (again.source_vocab, again.target_vocab) == (load(trained).source_vocab, load(trained).target_vocab)
    assert len(again.history) == 7


@pytest.mark.parametrize(("name", "kept"), [("target.case", 10), ("source.pieces", 100), ("config.toml", None)])
def test_what_is_done_with_text_is_sealed(trained, tmp_path, name, kept):
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    content = (run / name).read_bytes()
    changed = content[:kept] + content[kept + 1 :] if kept else content.replace(b'case = "true"', b'case = "lower"')
    assert changed != content
    (run / name).write_bytes(changed)
    with pytest.raises(
        RunError,
        match=r"\[text\] is not what the run was trained with" if kept is None else f"{name} is not what was written",
    ):
        load(run)


def test_runs_with_other_words_compare_by_what_people_read(trained, tmp_path):
    words = train(config(tmp_path / "data", "words", {"languages": ["de", "en"]}, epochs=2), tmp_path)
    both = [load(trained), words]
    compared = compare(both, metrics=["sacrebleu"])
    said = [sacrebleu_says(run.folder / "test.ref.txt", "-i", run.folder / "test.txt")["BLEU"] for run in both]
    assert [row.score for row in compared.runs] == pytest.approx(said, abs=1e-4)
    with pytest.raises(RunError, match="cannot be compared"):
        compare(both, metrics=["bleu"])


def test_all_references_are_written(tmp_path):
    folder = tmp_path / "data"
    rows = [
        {"de": german, "en": [english, english.lower()] if i % 3 else [english]}
        for i, (german, english) in enumerate(prose(40))
    ]
    folder.mkdir()
    (folder / "all.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = train(
        config(folder, train=["all.jsonl"], columns=["de", "en"], text={"languages": ["de", "en"]}, epochs=3), tmp_path
    )
    files = [run.folder / name for name in ("test.ref.txt", "test.ref2.txt", "test.txt")]
    said = sacrebleu_says(*files[:2], "-i", files[2], "-m", "bleu", "chrf")
    found = {each.metric: each.score for each in run.evaluate().scored}
    assert found["sacrebleu"] == pytest.approx(said["BLEU"], abs=1e-4)
    assert found["sacrebleu_chrf"] == pytest.approx(said["chrF2"], abs=1e-4)


def test_captions_as_people_write_them(tmp_path):
    rng = numpy.random.default_rng(1)
    numpy.save(tmp_path / "features.npy", rng.normal(size=(40, 5)).astype("float32"))
    images = [
        {
            "id": f"{i}.jpg",
            "row": i,
            "split": "test" if i < 5 else "valid" if i < 10 else "train",
            "captions": [text, f"{text}\nSo!"],
        }
        for i, (_, text) in enumerate(prose(40))
    ]
    (tmp_path / "captions.json").write_text(json.dumps(images))
    values = {
        "data": {"task": "captions", "folder": str(tmp_path)},
        "text": {"normalise": "NFC", "languages": ["en"], "case": "true"},
        "model": {"hidden": 8},
        "algorithm": {"name": "xent"},
        "training": {"epochs": 2, "threads": 1},
    }
    run = train(Config.parse(values), tmp_path)
    assert run.target_vocab.signature == "text:NFC+moses-en+truecase"
    assert (run.folder / "test.ref.txt").read_text().splitlines() == [text for _, text in prose(5)]
    assert (run.folder / "test.ref2.txt").read_text().splitlines() == [f"{text} So!" for _, text in prose(5)]
    said = sacrebleu_says(run.folder / "test.ref.txt", run.folder / "test.ref2.txt", "-i", run.folder / "test.txt")
    assert run.evaluate(metrics=["sacrebleu"]).score == pytest.approx(said["BLEU"], abs=1e-4)


def test_what_has_words_of_its_own_is_no_raw_text():
    with pytest.raises(ConfigError, match=r"\[text\] is for raw text, not for data.task = 'toy-translation'"):
        Config.parse({"text": {"case": "lower"}})


def test_the_score_that_is_the_reward(tmp_path):
    """sacreBLEU's sentence score of readable text, as a training reward."""
    made = config(tmp_path / "data", text={"languages": ["de", "en"]}, epochs=1)
    changed = made.model_dump() | {
        "algorithm": {"name": "reinforce", "samples": 2, "baseline": "leave-one-out"},
        "reward": {"name": "sacrebleu"},
    }
    run = train(Config.parse(changed), tmp_path)
    shown = read_sentences(run.folder)
    mean = sum(
        sacrebleu.sentence_bleu(h, r).score for h, r in zip(shown.hypotheses, shown.references, strict=True)
    ) / len(shown.hypotheses)
    metric = run.metrics(run.task())[0]
    assert metric.name == "sacrebleu"
    assert float(metric.of_each(shown.statistics).mean()) == pytest.approx(mean, abs=1e-3)
