"""Parallel text: files, errors, tasks, and the choice of T."""

import gc
import gzip
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqmixer.data import (
    Split,
    Vocab,
    VocabLimits,
    collector_paused,
    coverage,
    encode_split,
    files,
    length_covering,
    read_lines,
    read_pairs,
    text_task,
)
from seqmixer.errors import DataError
from seqmixer.types import EOS, UNK


def refuses(message):
    return pytest.raises(DataError, match=f"^{re.escape(message)}$")


def write(path, *lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


# --- files


def test_plain_and_gzip_files_read_alike(tmp_path):
    plain = write(tmp_path / "a.de", "ein Hund", "zwei Hünde")
    packed = tmp_path / "a.de.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert read_lines(plain, 10) == read_lines(packed, 10) == ["ein Hund", "zwei Hünde"]


def test_a_packed_file_that_would_fill_the_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "ROOM", 1000)
    text = b"a\n" * 100_000
    packed = gzip.compress(text)
    (tmp_path / "a.gz").write_bytes(packed)
    with refuses(
        f"{tmp_path}/a.gz: unpacks to more than {200 * len(packed):,} bytes, 200 times its size, which no text does; unpack it yourself if it is right"
    ):
        read_lines(tmp_path / "a.gz", 10)
    (tmp_path / "b.gz").write_bytes(gzip.compress(bytes(random.Random(0).choices(b"ab ", k=100_000))))
    assert read_lines(tmp_path / "b.gz", 10**6)


@pytest.mark.parametrize(
    "content", [b"a\nb\n", b"a\nb", b"a\r\nb\r\n", b"\xef\xbb\xbfa\nb\n"], ids=["LF", "no last LF", "CRLF", "BOM"]
)
def test_line_ends_and_byte_order_marks_are_no_part_of_the_text(tmp_path, content):
    (tmp_path / "a").write_bytes(content)
    assert read_lines(tmp_path / "a", 10) == ["a", "b"]


@pytest.mark.parametrize("separator", ["\u2028", "\x85", "\x0b", "\x0c", "\x1c"])
def test_odd_line_separators_do_not_shift_the_lines(tmp_path, separator):
    assert read_lines(write(tmp_path / "a", f"a{separator}b", "c"), 10) == [f"a{separator}b", "c"]


def test_a_missing_file_is_named(tmp_path):
    with refuses(f"{tmp_path}/a.de: no such file"):
        read_lines(tmp_path / "a.de", 10)


def test_a_folder_is_no_file(tmp_path):
    with refuses(f"{tmp_path}: cannot be read (Is a directory)"):
        read_lines(tmp_path, 10)


@pytest.mark.parametrize(
    ("content", "where"),
    [(b"\xff", ":1: not UTF-8 (byte 0xff at column 1)"), (b"ab\nc\xe9 d\n", ":2: not UTF-8 (byte 0xe9 at column 2)")],
)
def test_bad_utf8_is_refused_with_line_and_column(tmp_path, content, where):
    (tmp_path / "a.de").write_bytes(content)
    with refuses(f"{tmp_path}/a.de{where}; convert the file, for example with iconv"):
        read_lines(tmp_path / "a.de", 10)


@pytest.mark.parametrize("blank", ["", "  \t", "\u00a0"])
def test_an_empty_line_is_refused(tmp_path, blank):
    path = write(tmp_path / "a.de", "a", blank, "b")
    with refuses(f"{path}:2: empty line; drop the pair or set data.skip_empty = true"):
        read_lines(path, 10)
    assert read_lines(path, 10, allow_empty=True) == ["a", blank, "b"]


def test_an_over_long_line_is_refused(tmp_path):
    path = write(tmp_path / "a.de", "a b c", "a b c d")
    with refuses(
        f"{path}:2: 4 words, more than data.max_words = 3; shorten or drop the line, or raise the setting",
    ):
        read_lines(path, 3)
    assert len(read_lines(path, 4)) == 2


def test_an_empty_file_is_refused(tmp_path):
    with refuses(f"{tmp_path}/a.de: no sentences; the file is empty"):
        read_lines(write(tmp_path / "a.de"), 10)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda packed: packed[:-9], "Compressed file ended before the end-of-stream marker was reached"),
        (lambda packed: b"plain text", "Not a gzipped file (b'pl')"),
    ],
    ids=["cut short", "never packed"],
)
def test_a_damaged_gzip_file_is_refused(tmp_path, damage, reason):
    path = tmp_path / "a.de.gz"
    path.write_bytes(damage(gzip.compress(b"ein Hund\n" * 100)))
    with refuses(f"{path}: damaged gzip file ({reason}); fetch or pack it again"):
        read_lines(path, 10)


def test_a_gzip_file_with_a_wrong_byte_is_refused(tmp_path):
    path = tmp_path / "a.de.gz"
    packed = bytearray(gzip.compress(b"ein Hund\n" * 100))
    packed[10] = 0x07  # after the header: a block of the type that does not exist
    path.write_bytes(packed)
    with pytest.raises(DataError, match=rf"^{re.escape(str(path))}: damaged gzip file \(.+\); fetch or pack it again$"):
        read_lines(path, 10)


# --- pairs


def test_several_reference_files_are_aligned_with_the_source(tmp_path):
    source = write(tmp_path / "a.de", "ein Hund", "eine Katze")
    first, second = write(tmp_path / "a.en0", "a dog", "a cat"), write(tmp_path / "a.en1", "one dog", "one cat")
    assert read_pairs(source, [first, second], skip_empty=False, max_words=10) == (
        ["ein Hund", "eine Katze"],
        [["a dog", "one dog"], ["a cat", "one cat"]],
    )


def test_text_without_a_source_is_read_with_sources_none(tmp_path):
    path = write(tmp_path / "a.en", "a dog", "a cat")
    assert read_pairs(None, [path], skip_empty=False, max_words=10) == (None, [["a dog"], ["a cat"]])


@pytest.mark.parametrize("skip_empty", [False, True])
def test_unequal_line_counts_are_refused(tmp_path, skip_empty):
    source = write(tmp_path / "a.de", *"abcdefghij")
    references = [write(tmp_path / "a.en0", *"abcdefghij"), write(tmp_path / "a.en1", *"abcdefghi")]
    with refuses(f"{source} has 10 lines but {references[1]} has 9; parallel files need equal counts"):
        read_pairs(source, references, skip_empty=skip_empty, max_words=10)


def test_pairs_with_an_empty_side_are_skipped_only_when_asked(tmp_path):
    source = write(tmp_path / "a.de", "A", "", "C", "D")
    references = [write(tmp_path / "a.en0", "a", "b", "c", "d"), write(tmp_path / "a.en1", "a", "b", " ", "d")]
    assert read_pairs(source, references, skip_empty=True, max_words=10) == (["A", "D"], [["a", "a"], ["d", "d"]])
    with refuses(f"{source}:2: empty line; drop the pair or set data.skip_empty = true"):
        read_pairs(source, references, skip_empty=False, max_words=10)


# --- tasks

TRAIN = (["ein Hund", "ein Tier", "die Katze"], [["a dog", "one dog"], ["an animal"], ["the cat"]])
OTHER = (["ein Fisch"], [["a fish"]])


def test_a_split_holds_ids_and_text():
    source_vocab, target_vocab = Vocab.build(["ein Hund"]), Vocab.build(["a dog"])
    split = encode_split(["ein Hund", "Hund ein"], [["a dog"], ["dog", "a cat"]], source_vocab, target_vocab)
    assert split.sources == [[5, 4, EOS], [4, 5, EOS]]  # Hund before ein: capitals sort first
    assert split.references == [[[4, 5, EOS]], [[5, EOS], [4, UNK, EOS]]]
    assert split.meta == [
        {"source": "ein Hund", "references": ["a dog"]},
        {"source": "Hund ein", "references": ["dog", "a cat"]},
    ]


def test_vocabularies_come_from_the_training_text_alone():
    task = text_task("pets", TRAIN, OTHER, OTHER, length=5)
    assert set(task.source_vocab.words[4:]) == {"ein", "Hund", "Tier", "die", "Katze"}
    assert set(task.target_vocab.words[4:]) == {"a", "dog", "one", "an", "animal", "the", "cat"}  # of all references
    assert task.valid.references == [[[task.target_vocab.ids["a"], UNK, EOS]]]
    assert (task.name, task.length, task.features) == ("pets", 5, None)


def test_each_side_has_its_own_vocabulary_limits():
    limits = {"source_limits": VocabLimits(min_count=2), "target_limits": VocabLimits(max_size=2)}
    task = text_task("pets", TRAIN, OTHER, OTHER, length=5, **limits)
    assert task.source_vocab.words[4:] == ("ein",)
    assert task.target_vocab.words[4:] == ("dog", "a")


def test_given_vocabularies_are_used_as_they_are():
    vocabs = Vocab.build(["Fisch"]), Vocab.build(["fish"])
    task = text_task("pets", TRAIN, OTHER, OTHER, length=5, vocabs=vocabs)
    assert (task.source_vocab, task.target_vocab) == vocabs
    assert task.test.references == [[[UNK, 4, EOS]]]


def test_a_language_model_task_has_empty_sources_and_no_source_vocabulary():
    task = text_task("lm", (None, TRAIN[1]), (None, OTHER[1]), (None, OTHER[1]), length=5)
    assert task.source_vocab is None
    assert task.train.sources == [[], [], []]
    assert task.valid.meta == [{"source": "", "references": ["a fish"]}]


@pytest.mark.parametrize("empty", ["train", "valid", "test"])
def test_an_empty_split_is_refused(empty):
    splits = {"train": TRAIN, "valid": OTHER, "test": OTHER} | {empty: ([], [])}
    with refuses(f"pets: the {empty} split is empty"):
        text_task("pets", *splits.values(), length=5)


def test_vocabularies_of_another_kind_of_task_are_refused():
    vocab = Vocab.build(["a"])
    with refuses("there is source text but no source vocabulary; the vocabularies belong to another kind of task"):
        encode_split(["a"], [["a"]], None, vocab)
    with refuses("there is a source vocabulary but no source text; the vocabularies belong to another kind of task"):
        encode_split(None, [["a"]], vocab, vocab)


# --- the choice of T

lengths = st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=3), min_size=1, max_size=40)


def split_of(lengths):
    references = [[[9] * (n - 1) + [EOS] for n in group] for group in lengths]
    return Split([[EOS]] * len(lengths), references, [{}] * len(lengths))


@given(lengths, st.integers(0, 13))
def test_coverage_is_the_share_of_references_that_keep_their_eos(lengths, length):
    split = split_of(lengths)
    kept = [EOS in reference[:length] for group in split.references for reference in group]
    assert coverage(split, length) == pytest.approx(sum(kept) / len(kept))


@given(lengths, st.floats(0.01, 1) | st.integers(1, 100).map(lambda percent: percent / 100))
def test_the_chosen_length_is_the_smallest_that_covers_the_share(lengths, share):
    split = split_of(lengths)
    assert length_covering(split, share) == next(n for n in range(1, 14) if coverage(split, n) >= share)


def test_a_task_without_a_length_holds_95_percent_of_the_training_references():
    references = [["a"]] * 94 + [["a b"]] + [["a b c"]] * 5
    task = text_task("lm", (None, references), (None, [["a b c d"]]), (None, [["a"]]), length=None)
    assert task.length == 3  # "a b" and EOS
    assert coverage(task.train, task.length) == 0.95


@pytest.mark.realdata
def test_multi30k_is_read_whole(real_data):
    folder = real_data("multi30k-de-en")
    splits = [
        read_pairs(folder / f"{name}.de.gz", [folder / f"{name}.en.gz"], skip_empty=False, max_words=200)
        for name in ("train", "valid", "test")
    ]
    task = text_task("multi30k", *splits, length=None)
    assert [len(task.train), len(task.valid), len(task.test)] == [29_000, 1_014, 1_000]
    assert coverage(task.train, task.length) >= 0.95 > coverage(task.train, task.length - 1)


def test_reading_leaves_the_garbage_collector_as_it_was():
    assert gc.isenabled()
    with collector_paused():
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with collector_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_failed_reading_puts_the_garbage_collector_back():
    with pytest.raises(KeyError), collector_paused():
        raise KeyError
    assert gc.isenabled()


@pytest.mark.parametrize("most", [1, 2, 7])
@pytest.mark.parametrize("form", [" ".join, "   ".join, lambda words: " ".join(word * 9 for word in words) + "  "])
def test_a_line_is_too_long_by_its_words_and_not_its_letters(tmp_path, most, form):
    (tmp_path / "x").write_text(form("a" * most) + "\n")
    assert read_lines(tmp_path / "x", most) == [form("a" * most)]
    (tmp_path / "x").write_text(form("a" * (most + 1)) + "\n")
    with pytest.raises(DataError, match=f"x:1: {most + 1} words, more than data.max_words = {most};"):
        read_lines(tmp_path / "x", most)
