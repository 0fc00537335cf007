import json

import pytest

from seqmixer.config import Config
from seqmixer.doctor.data import described
from seqmixer.doctor.findings import Diagnosis
from seqmixer.runs import task_of, train

SOURCES = {
    "train": ["a b c", "b c", "c d e a", "d e", "e a b", "a c", "b d", "c e a"],
    "valid": ["a b d", "e c"],
    "test": ["a a", "d d c", "b e"],
}


@pytest.fixture
def config(tmp_path):
    """Three splits that share no sentence, read backwards."""
    for split, lines in SOURCES.items():
        (tmp_path / f"{split}.a").write_text("\n".join(lines) + "\n")
        (tmp_path / f"{split}.b").write_text("\n".join(" ".join(line.split()[::-1]) for line in lines) + "\n")

    def made(**data):
        files = {split: [f"{split}.a", f"{split}.b"] for split in SOURCES}
        return Config.parse(
            {
                "data": {"task": "text", "folder": str(tmp_path), "length": 5, **files, **data},
                "model": {"hidden": 4},
                "algorithm": {"name": "xent"},
                "training": {"batch_size": 4, "epochs": 1},
            }
        )

    return made


def said(config, folder):
    found = Diagnosis()
    found.add("data", described(config, task_of(config), folder))
    return [(finding.level, str(finding)) for finding in found.findings["data"]]


def test_good_data_is_described(config, tmp_path):
    assert said(config(), tmp_path / "run") == [
        ("ok", "text: 8 / 2 / 3 examples to train, validate and test on, 9 source and 9 target words"),
        ("ok", "T = 5 covers 100.0% of the training targets"),
    ]


def test_a_length_that_crops_many_targets(config, tmp_path):
    assert (
        "warning",
        "T = 3 covers 50.0% of the training targets: the longer ones lose their last words and EOS, so the model learns "
        "not to stop; set data.length = 5, which covers 95 %",
    ) in said(config(length=3), tmp_path)


def test_unknown_words_are_counted_on_both_sides(config, tmp_path):
    (tmp_path / "test.a").write_text("a x\nx x x\nb e\n")
    (tmp_path / "valid.b").write_text("d b y\nc e\n")
    assert said(config(), tmp_path)[2:] == [
        (
            "warning",
            "20.0% of the target words of valid are unknown: an unknown word never matches; lower data.target_min_count, "
            "raise data.target_max_size, or use BPE",
        ),
        (
            "warning",
            "57.1% of the source words of test are unknown: the model reads them all as one word; lower "
            "data.source_min_count, raise data.source_max_size, or use BPE",
        ),
    ]


def test_test_sentences_among_the_training_ones(config, tmp_path):
    (tmp_path / "test.a").write_text("a a\nb c\nb d\n")
    (tmp_path / "test.b").write_text("a a\nc b\nd e\n")  # the second is a training pair, the third only has its source
    assert said(config(), tmp_path)[2:] == [
        (
            "warning",
            "33.3% of the test examples, source and reference, are training examples too: their score says nothing of new "
            "text; drop them from the training data",
        )
    ]


def test_a_batch_that_holds_all_data(config, tmp_path):
    large = config().model_copy(update={"training": config().training.model_copy(update={"batch_size": 9})})
    line = "training.batch_size = 9 is more than the 8 training examples: an epoch is then one update; lower it"
    assert ("warning", line) in said(large, tmp_path)


def test_data_against_what_the_run_began_with(config, tmp_path):
    folder = train(config(), tmp_path).folder
    assert ("ok", f"the data is what the run in {folder} began with") in said(config(), folder)
    (tmp_path / "valid.b").write_text("d b a\ne c\n")
    assert (
        "problem",
        f"{folder}: the valid data is not what the run began with; put the old files back, or begin another run (--set "
        "name=...)",
    ) in said(config(), folder)
    (folder / "task.json").write_text(json.dumps({"dimensions": {}}))
    line = f"{folder}/task.json is missing or damaged; this is no complete run folder"
    assert ("problem", line) in said(config(), folder)
