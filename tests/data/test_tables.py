"""Tables of text, and validation and test splits that are drawn from the training text."""

import csv
import gzip
import io
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from prose import write_prose
from seqmixer.build import build_task
from seqmixer.config import Config
from seqmixer.data import hold_out, kind_of, read_pairs, read_table
from seqmixer.errors import ConfigError, DataError

ROWS = [("Ein Hund.", 'A "dog", 1\t2'), ("Zwei\nHunde", "Two dogs"), ("Drei", 'Three "')]


def pack(path, text):
    data = text.encode("utf-8-sig")
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def written(path):
    """ROWS in the format that the name of the file says, by another library than the reader's."""
    kind = kind_of(path)
    if kind == ".jsonl":
        return pack(path, "".join(json.dumps({"id": i, "de": de, "en": en}) + "\n" for i, (de, en) in enumerate(ROWS)))
    if kind == ".csv":
        text = io.StringIO()
        csv.writer(text).writerows([("id", "de", "en"), *((i, *row) for i, row in enumerate(ROWS))])
        return pack(path, text.getvalue())
    flat = [("id", "de", "en"), *((str(i), *row) for i, row in enumerate(ROWS))]
    return pack(
        path, "".join("\t".join(cell.replace("\n", " ").replace("\t", " ") for cell in row) + "\n" for row in flat)
    )


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl", "a.tsv.gz", "a.csv.gz", "a.jsonl.gz"])
def test_columns_are_read_by_their_names(tmp_path, name):
    sources, references = read_table(written(tmp_path / name), "de", ["en"], False, 10)
    assert sources == ["Ein Hund.", "Zwei Hunde", "Drei"]
    tab = " " if ".tsv" in name else "\t"
    assert references == [[f'A "dog", 1{tab}2'], ["Two dogs"], ['Three "']]
    assert read_table(tmp_path / name, None, ["de", "en"], False, 10)[1][1] == ["Zwei Hunde", "Two dogs"]


def test_a_table_without_names_has_numbers(tmp_path):
    path = pack(tmp_path / "a.tsv", "Ein Hund\tA dog\tx\nDrei\tThree\ty\n")
    assert read_table(path, "1", ["2"], False, 10) == (["Ein Hund", "Drei"], [["A dog"], ["Three"]])
    with pytest.raises(ConfigError, match=r"unknown column of .*a\.tsv '4'\. .*Known: 1, 2, 3\."):
        read_table(path, "4", ["2"], False, 10)


def test_several_references_in_a_cell(tmp_path):
    path = pack(tmp_path / "a.jsonl", '{"s": "a", "t": ["b", "c"]}\n{"s": "d", "t": "e"}\n')
    assert read_table(path, "s", ["t"], False, 10) == (["a", "d"], [["b", "c"], ["e"]])


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.tsv", "de\ten\nx\ty\nz\n", "3: 1 cells, where the first line has 2"),
        ("a.csv", 'de,en\n"x\ny",z\n"a,b\n', "4: not CSV (unexpected end of data); is a quotation mark closed?"),
        ("a.csv", 'de,en\n"x\ny",z\nu,v,w\n', "4: 3 cells, where the first line has 2"),
        ("a.csv", f'de,en\nx,"{"y" * 200_000}"\n', "2: not CSV (field larger than field limit (131072)); is a quotation mark closed?"),
        ("a.tsv", "de\ten\nx\t\n", "2: an empty text; drop the row or set data.skip_empty = true"),
        ("a.tsv", "de\ten\n\nx\ty\n", "2: an empty text; drop the row or set data.skip_empty = true"),
        ("a.tsv", f"de\ten\nx\t{'y ' * 11}\n", "2: 11 words, more than data.max_words = 10; shorten or drop the line, or raise the setting"),
        ("a.tsv", f"de\ten\nx\t{'y' * 201}\n",
         "2: 201 characters, more than 20 times data.max_words = 10; shorten or drop the line, or raise the setting"),
        ("a.jsonl", '{"de": "x", "en": "y"}\n{"de": "x", "en": 3}\n', "2: 'en' is 3; a column of text has strings, or lists of strings"),
        ("a.jsonl", '{"de": "x", "en": "y"}\n{"de" "x"}\n', "2: not JSON (expected `:` at column 7)"),
        ("a.jsonl", '{"de": "x", "en": "\\ud800"}\n', "1: not JSON (unexpected end of hex escape at column 26)"),
        ("a.jsonl", "[1]\n", "1: input should be an object"),
        ("a.jsonl", "[" * 100_000 + "\n", "1: not JSON (recursion limit exceeded at column 202)"),
        ("a.jsonl", '{"de": ["x", "z"], "en": "y"}\n', "1: 2 sources in 'de'; a row has one"),
    ],
    ids=map(str, range(14)),
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_line(tmp_path, name, text, line):
    path = pack(tmp_path / name, text)
    with pytest.raises(DataError) as error:
        read_table(path, "de", ["en"], False, 10)
    assert str(error.value) == f"{path}:{line}"


def test_rows_with_an_empty_side_can_be_dropped(tmp_path):
    for name, text in {
        "a.tsv": "de\ten\nx\t\n\na\tb\n",
        "a.csv": 'de,en\nx,\n\n"",y\na,b\n',
        "a.jsonl": '{"de": "x"}\n\n{"de": null, "en": "y"}\n{"de": "a", "en": "b"}\n',
    }.items():
        path = pack(tmp_path / name, text)
        if name == "a.jsonl":
            with pytest.raises(ConfigError, match=r"unknown column of .*a\.jsonl:1 'en'\. Known: de\."):
                read_table(path, "de", ["en"], True, 10)
            path = pack(tmp_path / name, text.replace('"x"', '"x", "en": []'))
        assert read_table(path, "de", ["en"], True, 10) == (["a"], [["b"]])


@given(
    st.lists(st.tuples(st.text("abAB ", min_size=1), st.text("xyz", min_size=1)), min_size=1),
    st.integers(0, 4),
    st.integers(0, 4),
)
@example([(f"{i}", "x") for i in "aAbBcCdDeE"], 2, 4)
def test_no_source_is_in_two_splits(pairs, valid, test):
    sources, references = [s for s, _ in pairs], [[t] for _, t in pairs]
    try:
        splits = hold_out((sources, references), valid, test)
    except DataError:
        return
    assert [len(split[1]) for split in splits[1:]] == [valid, test]
    keys = [{" ".join(s.casefold().split()) for s in split[0]} for split in splits]
    assert not keys[0] & keys[1] | keys[0] & keys[2] | keys[1] & keys[2]
    assert sorted((s, t) for split in splits for s, (t,) in zip(*split, strict=True)) == sorted(pairs)


def test_the_draw_depends_on_the_text_alone():
    texts = [f"sentence {i}" for i in range(300)]
    train, valid, test = hold_out((texts, [[text] for text in texts]), 20, 30)
    mirrored = hold_out((texts[::-1], [[text] for text in texts[::-1]]), 20, 30)
    assert [sorted(split[0]) for split in mirrored] == [sorted(split[0]) for split in (train, valid, test)]
    grown = [*texts, *(f"another {i}" for i in range(30))]
    assert (
        len({*hold_out((grown, [[text] for text in grown]), 20, 30)[2][0]} & {*test[0]}) >= 24
    )  # 30 * 300 / 330 expected
    assert train[0] == [text for text in texts if text in train[0]]  # in their order
    with pytest.raises(
        DataError, match="300 different texts to train on do not give 200 for validation and 100 for the test"
    ):
        hold_out((texts, [[text] for text in texts]), 200, 100)


def data(folder, **settings):
    return Config.parse({"data": {"task": "text", "folder": str(folder), **settings}}).data


def test_splits_without_files_are_drawn(tmp_path):
    write_prose(tmp_path, 40)
    task = build_task(data(tmp_path, train=["all.de", "all.en"], held_out=[4, 6]))
    assert [len(split) for split in task.splits.values()] == [30, 4, 6]
    only_test = build_task(data(tmp_path, train=["all.de", "all.en"], valid=["all.de", "all.en"], held_out=[0, 6]))
    assert [len(split) for split in only_test.splits.values()] == [34, 40, 6]
    whole = read_pairs(tmp_path / "all.de", [tmp_path / "all.en"], False, 100)
    assert only_test.test.meta[0]["source"] in whole[0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"train": ["a.tsv"], "held_out": [1, 1]}, "'a.tsv' is a table; name its columns, such as data.columns"),
        ({"train": ["a.de"], "columns": ["de", "en"], "held_out": [1, 1]}, "data.train names 1 files; with data.columns it names one .tsv"),
        ({"train": ["a.tsv"], "columns": ["de"], "held_out": [1, 1]}, "data.columns names 1 columns; with data.task = 'text' it names"),
        ({"train": ["a.de", "a.en"], "valid": ["b.de", "b.en"], "held_out": [1, 1]},
         "data.valid names files, and data.held_out draws 1 examples for it; choose one"),
        ({"train": ["a.de", "a.en"], "held_out": [1, 0]}, "or set data.held_out, which draws from the training text"),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit_are_refused(settings, message):
    with pytest.raises(ConfigError) as error:
        data(".", **settings)
    assert message in str(error.value)
