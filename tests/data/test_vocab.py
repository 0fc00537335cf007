"""Vocabularies: building, encoding, files."""

import os
import re
import unicodedata
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqmixer.data import Vocab
from seqmixer.errors import DataError
from seqmixer.types import BOS, EOS, PAD, UNK

SPECIALS = ("<pad>", "<s>", "</s>", "<unk>")
word = st.text("abcé中-'<>/su", min_size=1, max_size=3).filter(lambda w: w not in SPECIALS)
sentences = st.lists(st.lists(word, min_size=1, max_size=8).map(" ".join), min_size=1, max_size=8)


@given(sentences)
def test_known_sentences_survive_encoding_and_decoding(texts):
    vocab = Vocab.build(texts)
    for text in texts:
        assert vocab.decode(vocab.encode(text)) == text


@given(sentences)
def test_an_encoded_sentence_is_one_id_a_word_and_eos(texts):
    vocab = Vocab.build(texts)
    for text in texts:
        ids = vocab.encode(text)
        assert ids == [vocab.words.index(w) for w in text.split()] + [EOS]


@given(sentences, st.integers(1, 4), st.none() | st.integers(0, 5))
def test_the_most_frequent_words_are_kept_and_ties_are_alphabetical(texts, min_count, max_size):
    counts = Counter(" ".join(texts).split())
    ranked = sorted(sorted(counts), key=lambda w: counts[w], reverse=True)  # stable: ties stay alphabetical
    kept = [w for w in ranked if counts[w] >= min_count]
    expected = kept if max_size is None else kept[:max_size]
    assert Vocab.build(texts, min_count, max_size).words == SPECIALS + tuple(expected)


def test_ids_of_the_specials_are_those_of_types():
    vocab = Vocab.build([])
    assert [vocab.words[i] for i in (PAD, BOS, EOS, UNK)] == list(SPECIALS)
    assert len(vocab) == 4


def test_special_words_in_the_text_are_unknown_words():
    vocab = Vocab.build(["a <s> <unk> <pad> </s>"])
    assert vocab.words == (*SPECIALS, "a")
    assert vocab.encode("<pad> a <s> </s> <unk> b") == [UNK, 4, UNK, UNK, UNK, UNK, EOS]


def test_decoding_stops_at_the_first_eos_or_pad_and_skips_bos():
    vocab = Vocab.build(["a b"])
    assert vocab.decode([BOS, 4, UNK, 5, EOS, 4]) == "a <unk> b"
    assert vocab.decode([4, PAD, 5]) == "a"
    assert vocab.decode([]) == ""


@pytest.mark.parametrize("space", [chr(i) for i in range(0x3001) if chr(i).isspace()])
def test_any_white_space_separates_words(space):
    assert Vocab.build([f"a{space}b"]).words == (*SPECIALS, "a", "b"), unicodedata.name(space, "control")


@given(sentences)
def test_a_saved_vocabulary_is_loaded_as_it_was(tmp_path_factory, texts):
    path = tmp_path_factory.mktemp("vocab") / "words.txt"
    vocab = Vocab.build(texts)
    vocab.save(path)
    assert Vocab.load(path) == vocab
    assert path.read_text(encoding="utf-8").splitlines() == list(vocab.words)


def test_a_vocabulary_file_edited_on_windows_is_read_alike(tmp_path):
    path = tmp_path / "words.txt"
    path.write_bytes("\r\n".join([*SPECIALS, "é"]).encode("utf-8-sig"))
    assert Vocab.load(path).words == (*SPECIALS, "é")


START = "a vocabulary file starts with <pad>, <s>, </s>, <unk>, one a line"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("the\n", f":1: expected '<pad>', got 'the'; {START}"),
        ("", f":1: expected '<pad>', got the end of the file; {START}"),
        ("<pad>\n<s>\n<unk>\n</s>\n", f":3: expected '</s>', got '<unk>'; {START}"),
        ("<pad>\n<s>\n</s>\n", f":4: expected '<unk>', got the end of the file; {START}"),
        ("<pad>\n<s>\n</s>\n<unk>\na\n\nb\n", ":6: empty line; a vocabulary file has one word a line"),
        ("<pad>\n<s>\n</s>\n<unk>\na b\n", ":5: white space in 'a b'; a vocabulary file has one word a line"),
        ("<pad>\n<s>\n</s>\n<unk>\na\nb\na\n", ":7: 'a' again, first on line 5; drop one of them"),
        ("<pad>\n<s>\n</s>\n<unk>\n<s>\n", ":5: '<s>' again, first on line 2; drop one of them"),
    ],
)
def test_a_damaged_file_is_refused_with_its_line(tmp_path, content, message):
    path = tmp_path / "words.txt"
    path.write_text(content)
    with pytest.raises(DataError, match=f"^{re.escape(f'{path}{message}')}$"):
        Vocab.load(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=f"^{re.escape(f'{tmp_path}/words.txt: no such file')}$"):
        Vocab.load(tmp_path / "words.txt")


def test_words_without_the_specials_are_refused():
    message = "a vocabulary starts with <pad>, <s>, </s>, <unk>; got a, b"
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        Vocab(("a", "b"))


def test_death_while_a_vocabulary_is_saved_leaves_the_one_before(tmp_path, monkeypatch):
    path = tmp_path / "target.vocab"
    before = Vocab.build(["a b"])
    before.save(path)

    def died(handle):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", died)
    with pytest.raises(KeyboardInterrupt):
        Vocab.build(["a b c d"]).save(path)
    assert Vocab.load(path) == before
