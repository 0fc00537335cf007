"""Multi30k from raw files, and any pair of files."""

import gzip
import re

import pytest

from seqmixer.data.prepare import Limits, multi30k, pairs
from seqmixer.errors import DataError


def refuses(message):
    return pytest.raises(DataError, match=f"^{re.escape(message)}$")


@pytest.fixture
def raw(tmp_path):
    texts = {
        "train": ("Zwei Männer, im Freien.\nEin Hund.\n\n", 'Two men, "outside".\nA dog\'s life.\nNobody.\n'),
        "val": ("Eine Frau\n", "A woman\n"),
        "test_2016_flickr": ("Ein Kind\n", "A child\n"),
    }
    for name, (german, english) in texts.items():
        (tmp_path / f"{name}.de").write_text(german)
        (tmp_path / f"{name}.en.gz").write_bytes(gzip.compress(english.encode()))
    return tmp_path


def test_multi30k_is_tokenised_and_lower_case(raw):
    corpus = multi30k(raw)
    assert corpus.splits == {
        "train": [
            ("zwei männer , im freien .", "two men , &quot; outside &quot; ."),
            ("ein hund .", "a dog &apos;s life ."),
        ],
        "valid": [("eine frau", "a woman")],
        "test": [("ein kind", "a child")],
    }
    assert corpus.dropped == {"train": {"empty": 1}, "valid": {}, "test": {}}
    assert multi30k(raw, "en", "de").splits["test"] == [("a child", "ein kind")]


@pytest.mark.parametrize("name", ["test2016", "test"])
def test_the_test_of_2016_goes_by_several_names(raw, name):
    (raw / "test_2016_flickr.de").rename(raw / f"{name}.de")
    (raw / "test_2016_flickr.en.gz").rename(raw / f"{name}.en.gz")
    assert multi30k(raw).splits["test"] == [("ein kind", "a child")]


def test_a_missing_test_names_all_that_would_do(raw):
    (raw / "test_2016_flickr.de").unlink()
    with refuses(f"{raw}: no file test_2016_flickr.de or test2016.de or test.de, plain or .gz"):
        multi30k(raw)


def test_a_split_of_which_nothing_is_left_is_refused(raw):
    (raw / "val.de").write_text(" \n")
    with refuses("multi30k: no pairs are left for valid; dropped: 1 empty of train, 1 empty of valid, nothing of test"):
        multi30k(raw)


@pytest.fixture
def files(tmp_path):
    (tmp_path / "talks.de").write_text("".join(f"Haus  Nummer {i % 10}!\n" for i in range(12)) + "ja\n")
    (tmp_path / "talks.en").write_text("".join(f"House number {i % 10}.\n" for i in range(12)) + "yes of course\n")
    return tmp_path / "talks.de", tmp_path / "talks.en"


def test_a_pair_of_files_is_cleaned_and_cut_without_an_overlap(files):
    limits = Limits(max_words=50, ratio=1.5, once=True)
    corpus = pairs(*files, languages=("de", "en"), limits=limits, valid=2, test=3)
    splits = corpus.splits
    assert [len(splits[split]) for split in ("train", "valid", "test")] == [5, 2, 3]
    everything = [pair for split in splits.values() for pair in split]
    assert sorted(everything) == [(f"haus nummer {i} !", f"house number {i} .") for i in range(10)]
    assert corpus.dropped == {"all": {"ratio": 1, "repeated": 2}}
    assert corpus.suffixes == ("de", "en")


def test_words_are_kept_as_they_are_without_languages(files):
    corpus = pairs(*files, languages=None, limits=Limits(), valid=1, test=1)
    everything = [pair for split in corpus.splits.values() for pair in split]
    assert len(everything) == 13
    assert ("Haus Nummer 7!", "House number 7.") in everything
    assert corpus.suffixes == ("src", "tgt")


def test_a_language_that_moses_does_not_know_is_refused(files):
    with pytest.raises(
        DataError, match=r"^no Moses rules for the language 'tlh'; known: as, bn, ca, cs, de, .+, yue, zh$"
    ):
        pairs(*files, languages=("tlh", "en"), limits=Limits(), valid=1, test=1)


def test_more_than_there_is_cannot_be_held_out(files):
    with refuses(
        f"13 pairs of {files[0]} and {files[1]} are there, but 10 for valid and 10 for test were asked for; ask for fewer"
    ):
        pairs(*files, languages=None, limits=Limits(), valid=10, test=10)
    with refuses(
        f"0 pairs of {files[0]} and {files[1]} (after 13 too long were dropped) are there, but 1 for valid and 1 for test were "
        "asked for; ask for fewer"
    ):
        pairs(*files, languages=None, limits=Limits(max_words=1), valid=1, test=1)
