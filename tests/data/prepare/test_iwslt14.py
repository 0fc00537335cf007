"""IWSLT14 from files of the official form, against sentences tokenised by hand; and against the real files."""

import gzip
import re
import tarfile

import pytest

from seqmixer.data.prepare import Limits, clean, iwslt14, tokenised
from seqmixer.errors import DataError

SETS = ["TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012"]


def talk(language, sentences):
    """train.tags of one talk: lines about it, its title and description, and what was said."""
    about = ["<url>http://www.ted.com/talks/x</url>", "<keywords>talks, x</keywords>", "<talkid>1</talkid>"]
    title = {"de": "Al Gore: Über Klima", "en": "Al Gore: On climate"}[language]
    rest = {"de": "Er sagt's!", "en": "He says it."}[language]
    lines = [*about, f"<title>{title}</title>", f"<description>TED Talk Subtitles: {rest}</description>", *sentences]
    return "".join(f"{line}\n" for line in lines)


def segments(sentences):
    lines = [f'<seg id="{i}"> {sentence} </seg>' for i, sentence in enumerate(sentences, 1)]
    head = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        '<mteval><refset><doc docid="1">',
        "<title>Not a sentence</title>",
    ]
    return "\n".join([*head, *lines, "</doc></refset></mteval>"]) + "\n"


def official(folder):
    """44 spoken sentences after the title and the description, two of them to be dropped; five test sets."""
    spoken = {"de": [f"Satz Nummer {i}!" for i in range(44)], "en": [f"Sentence number {i}." for i in range(44)]}
    spoken["de"][3], spoken["en"][3] = "", "Nothing was said."
    spoken["de"][4], spoken["en"][4] = "ja " * 51, "yes " * 51
    spoken["de"][5], spoken["en"][5] = "Ja.", "Yes I do."
    folder.mkdir(parents=True)
    for language in ("de", "en"):
        (folder / f"train.tags.de-en.{language}").write_text(talk(language, spoken[language]))
        for number, part in enumerate([*SETS, "TEDX.tst2013"]):  # the last is in the archive, but not in the test
            lines = {"de": [f"Das ist’s: {number}"], "en": [f'That’s "it": {number}']}[language]
            (folder / f"IWSLT14.{part}.de-en.{language}.xml").write_text(segments(lines))
    return folder


@pytest.fixture
def folder(tmp_path):
    return official(tmp_path / "de-en")


def test_training_text_is_cleaned_and_every_23rd_pair_is_for_validation(folder):
    corpus = iwslt14(folder)
    spoken = [(f"satz nummer {i} !", f"sentence number {i} .") for i in range(44) if i not in (3, 4, 5)]
    everything = [
        ("al gore : über klima", "al gore : on climate"),
        ("ted talk subtitles : er sagt &apos; s !", "ted talk subtitles : he says it ."),
        *spoken,
    ]
    assert len(everything) == 43
    assert corpus.splits["valid"] == [everything[22]]
    assert corpus.splits["train"] == everything[:22] + everything[23:]
    assert corpus.dropped["train and valid"] == {"empty": 1, "ratio": 1, "too long": 1}
    assert corpus.suffixes == ("de", "en")


def test_the_five_sets_are_joined_in_order_with_straight_apostrophes(folder):
    corpus = iwslt14(folder)
    assert corpus.splits["test"] == [
        (f"das ist &apos; s : {number}", f"that &apos;s &quot; it &quot; : {number}") for number in range(5)
    ]
    assert corpus.dropped["test"] == {}


def test_the_archive_gives_what_the_folder_gives(folder, tmp_path):
    (tmp_path / "download").mkdir()
    with tarfile.open(tmp_path / "download" / "de-en.tgz", "w:gz") as archive:
        archive.add(folder, "de-en")
    assert iwslt14(tmp_path / "download") == iwslt14(folder)


def test_training_text_with_a_sentence_too_many_is_refused(folder):
    with (folder / "train.tags.de-en.en").open("a") as file:
        file.write("One more.\n")
    with pytest.raises(DataError, match="^" + re.escape(
        f"{folder}: train.tags.de-en.de has 46 lines but {folder}: train.tags.de-en.en has 47; parallel files need equal counts"
    ) + "$"):  # fmt: skip
        iwslt14(folder)


def test_a_missing_test_set_is_named(folder):
    (folder / "IWSLT14.TEDX.dev2012.de-en.en.xml").unlink()
    path = folder / "IWSLT14.TEDX.dev2012.de-en.en.xml"
    with pytest.raises(DataError, match=f"^{re.escape(str(path))}: no such file$"):
        iwslt14(folder)


def test_pairs_at_the_limits_stay():
    """As Moses' clean-corpus-n: up to and including the greatest length, and the ratio itself, on either side."""
    limits = Limits(max_words=6, ratio=1.5)
    kept = [("a " * 6, "b " * 6), ("a a", "b b b"), ("a a a", "b b")]
    lost = [("a " * 7, "b " * 6), ("a a a", "b b b b b"), ("a a a a", "b b"), (" ", "b")]
    assert clean(kept + lost, limits) == (kept, {"empty": 1, "ratio": 2, "too long": 1})


@pytest.fixture
def lines(real_data):
    """lines(name): of one of the paper's own files."""
    folder = real_data("iwslt14-de-en")
    return lambda name: gzip.decompress((folder / f"{name}.gz").read_bytes()).decode().splitlines()


@pytest.mark.realdata
@pytest.mark.parametrize("language", ["de", "en"])
def test_the_papers_own_files_come_out_of_the_tokeniser_again(lines, language):
    """Glue the words of the paper's test file together and take them apart again.

    A full stop before a lower-case word ends no sentence for Moses, and the case is lost: such lines are left out.
    """
    from sacremoses import MosesDetokenizer

    detokenizer = MosesDetokenizer(lang=language)
    wanted = [line for line in lines(f"test.{language}") if not re.search(r" \. \w", line)]
    assert len(wanted) > 5_000
    found = tokenised([detokenizer.detokenize(line.split()) for line in wanted], language, "test")
    equal = sum(a == b for a, b in zip(wanted, found, strict=True))
    assert equal / len(wanted) > 0.998


@pytest.mark.realdata
def test_the_papers_own_files_are_within_the_limits(lines):
    valid = list(zip(lines("valid.de"), lines("valid.en"), strict=True))
    assert clean(valid, Limits(max_words=50, ratio=1.5)) == (valid, {})
    assert len(valid) == 6_969
    assert sum(len(target.split()) == 50 for _, target in valid) > 0  # the limit is 50, and not less
