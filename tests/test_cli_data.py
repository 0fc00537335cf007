"""`seqmixer data` as a person calls it."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

import seqmixer


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "talks.de").write_text("".join(f"Haus Nummer {i}!\n" for i in range(12)) + "ja\n\nHaus Nummer 0!\n")
    (tmp_path / "talks.en").write_text(
        "".join(f"House number {i}!\n" for i in range(12)) + "yes of course\n\nHouse number 0!\n"
    )
    return tmp_path


PAIRS = ("data", "prepare", "pairs", "talks.de", "talks.en", "--valid", 2, "--test", 3, "--out", "out")


@pytest.mark.parametrize("name", ["iwslt14", "gigaword", "coco", "multi30k", "pairs"])
def test_every_preparation_explains_itself(run, name):
    code, out, _ = run("data", "prepare", name, "--help")
    assert code == 0
    assert f"seqmixer data prepare {name} " in out


@pytest.mark.parametrize("name", ["features", "card"])
def test_the_other_commands_explain_themselves(run, name):
    code, out, _ = run("data", name, "--help")
    assert code == 0
    assert f"seqmixer data {name} " in out


def test_a_preparation_says_what_it_made_and_what_it_dropped(run, files):
    code, out, err = run(*PAIRS, "--languages", "de", "en", "--ratio", 1.5)
    assert (code, err) == (0, "")
    assert out == (
        "out: train 7, valid 2, test 3; T = 5 covers 100.0% of the targets\n"
        "dropped of all: 1 empty, 1 ratio, 1 repeated\n"
        "more in out/card.md\n"
    )
    card = (files / "out/card.md").read_text()
    command = "seqmixer data prepare pairs talks.de talks.en --valid 2 --test 3 --out out --languages de en --ratio 1.5"
    assert f"Made by `{command}`" in card


def test_a_prepared_set_has_the_fingerprints_that_the_card_of_a_config_shows(run, files):
    _, out, _ = run(*PAIRS, "--json")
    prepared = json.loads(out)
    (block,) = re.findall(r"```toml\n(.*?)```", (files / "out/card.md").read_text(), re.DOTALL)
    (files / "mine.toml").write_text(block)
    code, out, _ = run("data", "card", "mine.toml", "--set", "data.target_min_count=3", "--json")
    assert code == 0
    shown = json.loads(out)
    assert shown["splits"] == prepared["splits"]
    assert shown["vocabulary"]["target"][-1]["words"] < prepared["vocabulary"]["target"][-1]["words"]


def test_the_card_of_a_built_in_task_is_printed(run):
    config = Path(seqmixer.__file__).parent / "configs/toy/captioning.toml"
    code, out, _ = run("data", "card", config)
    assert code == 0
    assert out.startswith(f"# toy-captioning\n\nMade by `seqmixer data card {config}`, ")
    assert "| target words | known |" in out


def test_a_folder_in_use_is_refused_before_anything_is_read(run, files):
    (files / "out").mkdir()
    (files / "out" / "precious").touch()
    message = "seqmixer: out is there already, and not an empty folder; choose another --out, or remove it\n"
    assert run(*PAIRS) == (2, "", message)
    (files / "talks.de").unlink()
    assert run(*PAIRS) == (2, "", message)
    for name in ("iwslt14", "gigaword", "multi30k"):
        assert run("data", "prepare", name, "--from", "none", "--out", "out") == (2, "", message)
    assert run("data", "prepare", "coco", "--from", "none", "--features", "f.npz", "--out", "out") == (2, "", message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["iwslt14"], "none: neither de-en.tgz nor a folder with train.tags.de-en.de is there"),
        (["gigaword"], "none: no such folder; it is to hold train/train.article.txt, plain or .gz"),
        (
            ["coco", "--features", "f.npz"],
            "none: no such folder; it is to hold annotations/captions_train2014.json, plain or .gz",
        ),
        (["multi30k"], "none: no such folder; it is to hold train.de, plain or .gz"),
    ],
)
def test_a_corpus_that_is_not_there_is_one_line(run, files, arguments, message):
    assert run("data", "prepare", *arguments, "--from", "none", "--out", "out") == (2, "", f"seqmixer: {message}\n")
    assert not (files / "out").exists()


def test_features_are_computed_and_fit_coco(run, files):
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("efficientnet_lite_pytorch")
    (files / "coco/annotations").mkdir(parents=True)
    for split, numbers in (("train", [1, 2]), ("val", [3, 4, 5])):
        (files / f"coco/{split}2014").mkdir()
        names = {number: f"COCO_{split}2014_{number:012}.jpg" for number in numbers}
        for number, name in names.items():
            pixels = np.full((30, 40, 3), 40 * number, dtype=np.uint8)
            image.fromarray(pixels).save(files / f"coco/{split}2014" / name)
        content = {
            "images": [{"id": number, "file_name": name} for number, name in names.items()],
            "annotations": [{"id": number, "image_id": number, "caption": f"Picture {number}."} for number in numbers],
        }
        (files / f"coco/annotations/captions_{split}2014.json").write_text(json.dumps(content))
    features = ("data", "features", "coco", "--out", "coco.npz", "--quantise", "--device", "cpu")
    assert run(*features) == (0, "coco.npz: 1280 features of 5 images\n", "")
    code, out, err = run(
        "data", "prepare", "coco", "--from", "coco", "--features", "coco.npz", "--valid", 1, "--test", 1, "--out", "out"
    )
    assert (code, err) == (0, "")
    assert out.startswith("out: train 2, valid 1, test 1; T = 3 covers 100.0% of the targets\n")
    assert sorted(os.listdir("out")) == ["captions.json", "card.json", "card.md", "features.npz"]
