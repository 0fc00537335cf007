"""Data cards, against numbers counted by hand."""

import json
import re
from dataclasses import replace

import pytest
import torch

from seqmixer.data import Captioned, VocabLimits, captions_task, text_task
from seqmixer.data.cards import Lengths, Origin, as_json, as_markdown, describe, listed

TRAIN = (["a b", "a b", "a c d", "<unk> a"], [["x x x"], ["x y"], ["z"], ["x"]])
VALID = (["a e"], [["x w"]])
TEST = (["b b c f"], [["y y z v"]])


def task(**limits):
    return text_task("small", TRAIN, VALID, TEST, length=3, **limits)


def test_a_card_counts_examples_lengths_and_what_t_holds():
    card = describe(task(), {}, Origin("the command"))
    train = card.splits["train"]
    assert (train.examples, train.references) == (4, 4)
    assert train.source == Lengths(mean=9 / 4, median=2, most=3, longest=3)
    assert train.target == Lengths(mean=7 / 4, median=1, most=3, longest=3)
    assert train.covered == 3 / 4  # "x x x" and its EOS are four
    assert card.splits["test"].covered == 0
    assert card.length == 3


def test_a_card_says_what_vocabularies_of_each_threshold_do_not_know():
    card = describe(task(target_limits=VocabLimits(max_size=1)), {}, Origin("the command"))
    source = {known.min_count: known for known in card.vocabulary["source"]}
    assert source[1].words == 4  # a b c d; <unk> is no word
    assert source[1].unknown == {"train": 1 / 9, "valid": 1 / 2, "test": 1 / 4}
    assert source[2].words == 2  # a b
    assert source[2].unknown == {"train": 3 / 9, "valid": 1 / 2, "test": 2 / 4}
    assert source[5].words == 0
    assert source[None] == replace(source[1], min_count=None)
    target = {known.min_count: known for known in card.vocabulary["target"]}
    assert target[3].words == 1  # x
    assert target[None].words == 1
    assert target[None].unknown == {"train": 2 / 7, "valid": 1 / 2, "test": 1.0}


def test_a_fingerprint_is_of_the_text_and_not_of_the_vocabulary():
    known = task().train.fingerprint
    assert task(source_limits=VocabLimits(min_count=2)).train.fingerprint == known
    assert len(known) == 16
    sources, references = TRAIN
    changes = [
        (["a b", "a b", "a c d", "<unk> b"], references),
        (sources, [["x x x"], ["x y"], ["z"], ["y"]]),
        (sources, [["x x x"], ["x y"], ["z"], ["x", "x"]]),
        (sources[::-1], references[::-1]),
    ]
    others = {text_task("other", change, VALID, TEST, length=3).train.fingerprint for change in changes}
    assert len(others | {known}) == 5


def test_images_have_no_source_and_their_features_count_in_the_fingerprint():
    images = [Captioned(name, row, split, ["a dog", "a brown dog"][: row + 1]) for row, (name, split) in enumerate(
        [("a.jpg", "valid"), ("b.jpg", "train"), ("c.jpg", "test")])]  # fmt: skip
    features = torch.zeros(3, 2)
    card = describe(captions_task("images", images, features, length=4), {}, Origin("the command"))
    assert card.splits["train"].source is None
    assert (card.splits["train"].examples, card.splits["train"].references) == (1, 2)
    assert list(card.vocabulary) == ["target"]
    other = describe(captions_task("images", images, features + 1, length=4), {}, Origin("the command"))
    assert other.splits["train"].fingerprint != card.splits["train"].fingerprint
    assert "| train | 1 | 2 | - | 2.5, 2, 3, 3 | 100.0% |" in as_markdown(card)


def test_the_page_shows_all_of_it():
    origin = Origin(
        "seqmixer data card x", {"train": {"empty": 1234, "ratio": 2}, "test": {}}, {"valid": 6969}, {"task": "text"}
    )
    card = describe(task(), {"more": task().test}, origin)
    page = as_markdown(card)
    assert page.startswith("# small\n\nMade by `seqmixer data card x`, seqmixer ")
    assert re.search(
        r"^\| valid \| 1 \| 6,969 \| 1 \| 2\.0, 2, 2, 2 \| 2\.0, 2, 2, 2 \| 100\.0% \| `[0-9a-f]{16}` \|$", page, re.M
    )
    assert "| source words | known | unknown in train | unknown in valid | unknown in test | unknown in more |" in page
    assert "| seen 2 times or more | 2 | 33.33% | 50.00% | 50.00% | 50.00% |" in page
    assert "| used here | 4 | 11.11% | 50.00% | 25.00% | 25.00% |" in page
    assert "- train: 1,234 empty, 2 ratio\n- test: nothing\n" in page
    assert '```toml\n[data]\ntask = "text"\n```\n' in page


def test_the_json_is_the_card():
    card = describe(task(), {}, Origin("the command"))
    read = json.loads(as_json(card))
    assert read["splits"]["train"]["source"] == {"mean": 9 / 4, "median": 2, "most": 3, "longest": 3}
    assert read["vocabulary"]["source"][1]["unknown"]["train"] == pytest.approx(1 / 3)
    assert set(read["versions"]) == {"seqmixer", "python", "numpy", "sacremoses"}


def test_nothing_dropped_is_said():
    assert listed({}) == "nothing"
