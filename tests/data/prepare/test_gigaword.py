"""Gigaword from files of the sumdata layout."""

import gzip
import re

import pytest

from seqmixer.data.prepare import gigaword
from seqmixer.errors import DataError

SIZES = {"train": 6, "valid": 3, "test": 4}


@pytest.fixture
def folder(tmp_path):
    """Ten training pairs, one with an empty title; eight held-out pairs, packed; two of Giga."""
    (tmp_path / "train").mkdir()
    (tmp_path / "Giga").mkdir()
    (tmp_path / "train/train.article.txt").write_text("".join(f"Article {i} of #### .\n" for i in range(10)))
    (tmp_path / "train/train.title.txt").write_text("".join(f"title {i}\n" if i != 4 else "\n" for i in range(10)))
    held_out = {"article": "held {} <unk> .\n", "title": "head {}\n"}
    for side, form in held_out.items():
        text = "".join(form.format(i) for i in range(8))
        (tmp_path / f"train/valid.{side}.filter.txt.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "Giga/input.txt").write_text("Japan 's UNK corp. said UNKNOWN  things\nanother one\n")
    (tmp_path / "Giga/task1_ref0.txt").write_text("UNK corp. speaks\nanother\n")
    return tmp_path


def number(pair):
    """Of the line a pair is from; both sides have it."""
    source, target = (int(re.search(r"\d+", side).group()) for side in pair)
    assert source == target
    return source


def test_samples_have_the_sizes_asked_for_and_are_disjoint_and_in_order(folder):
    splits = gigaword(folder, SIZES, seed=3).splits
    assert {split: len(splits[split]) for split in SIZES} == SIZES
    train, valid, test = ([number(pair) for pair in splits[split]] for split in SIZES)
    assert train == sorted(set(train) - {4})  # 4 has no title
    assert (valid, test) == (sorted(set(valid)), sorted(set(test)))
    assert not set(valid) & set(test)
    assert splits["train"][0] == (f"article {train[0]} of #### .", f"title {train[0]}")
    assert splits["test"][0] == (f"held {test[0]} <unk> .", f"head {test[0]}")


def test_a_seed_gives_its_sample_each_time_and_another_seed_another(folder):
    samples = [[tuple(gigaword(folder, SIZES, seed).splits[split]) for split in SIZES] for seed in (1, 1, 2, 3, 4)]
    assert samples[0] == samples[1]
    assert any(sample != samples[0] for sample in samples[2:])


def test_every_held_out_pair_can_be_drawn(folder):
    drawn = {number(pair) for seed in range(20) for pair in gigaword(folder, SIZES, seed).splits["test"]}
    assert drawn == set(range(8))


def test_giga_is_kept_whole_with_its_unknown_words_spelt_as_elsewhere(folder):
    corpus = gigaword(folder, SIZES)
    assert corpus.splits["giga"] == [
        ("japan 's <unk> corp. said unknown things", "<unk> corp. speaks"),
        ("another one", "another"),
    ]
    assert corpus.dropped == {"train": {"empty": 1}, "held out": {}, "giga": {}}


def test_the_papers_sizes_are_the_default_and_too_large_for_a_small_folder(folder):
    with pytest.raises(DataError, match="^" + re.escape(
        "9 pairs of train/train.article.txt are there, but 179414 for train were asked for; ask for fewer"
    ) + "$"):  # fmt: skip
        gigaword(folder)
    with pytest.raises(DataError, match="^" + re.escape(
        "8 pairs of train/valid.article.filter.txt are there, but 5 for valid and 4 for test were asked for; ask for fewer"
    ) + "$"):  # fmt: skip
        gigaword(folder, {"train": 6, "valid": 5, "test": 4})


def test_a_missing_file_is_named(folder):
    (folder / "Giga/task1_ref0.txt").unlink()
    with pytest.raises(DataError, match=f"^{re.escape(str(folder))}: no file Giga/task1_ref0.txt, plain or .gz$"):
        gigaword(folder, SIZES)
