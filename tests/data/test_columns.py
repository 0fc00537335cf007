import pytest
from datasets import Dataset, DatasetDict

from seqmixer.build import build_task
from seqmixer.config import Config
from seqmixer.data import read_columns
from seqmixer.errors import ConfigError, DataError

ROWS = {
    "article": ["a long text", "another text"],
    "summary": ["a text", "another"],
    "others": [["text", "long text"], ["one more"]],
}


@pytest.fixture
def path(tmp_path):
    splits = {name: Dataset.from_dict(ROWS) for name in ("train", "validation", "test")}
    DatasetDict(splits).save_to_disk(tmp_path / "dataset")
    return tmp_path / "dataset"


def test_columns_are_sources_and_references(path):
    assert read_columns(path, "train", "article", ["summary"], False) == (ROWS["article"], [["a text"], ["another"]])
    assert read_columns(path, "test", "article", ["summary", "others"], False)[1] == [
        ["a text", "text", "long text"], ["another", "one more"],
    ]  # fmt: skip
    assert read_columns(path, "train", None, ["article"], False) == (None, [["a long text"], ["another text"]])


def test_a_dataset_is_a_task_like_text_files(path):
    data = {"task": "dataset", "folder": str(path.parent), "columns": ["article", "summary"]}

    task = build_task(Config.parse({"data": data}).data)

    assert [meta["source"] for meta in task.valid.meta] == ROWS["article"]
    assert task.target_vocab.decode(task.test.references[1][0]) == "another"


def message(function, kind=DataError):
    with pytest.raises(kind) as caught:
        function()
    return str(caught.value)


def test_what_is_not_there_is_said(path):
    assert message(lambda: read_columns(path, "valid", "article", ["summary"], False), ConfigError) == (
        f"unknown split of {path} 'valid'. Did you mean 'validation'? Known: test, train, validation."
    )
    assert message(lambda: read_columns(path, "train", "artikel", ["summary"], False), ConfigError) == (
        f"unknown column of {path} 'artikel'. Did you mean 'article'? Known: article, others, summary."
    )
    assert message(lambda: read_columns(path.parent, "train", "article", ["summary"], False)).startswith(
        f"{path.parent} is no dataset that `save_to_disk` wrote: "
    )
    assert message(lambda: read_columns(path, "train", "others", ["summary"], False)) == (
        f"{path}: train row 0: 2 sources in 'others'; a row has one"
    )


def test_empty_texts_are_refused_or_skipped(tmp_path):
    rows = {"a": ["one", " ", "three", "four", None, "six"], "b": [["x"], ["y"], [], ["z", ""], ["v"], ["w", None]]}
    DatasetDict({"train": Dataset.from_dict(rows)}).save_to_disk(tmp_path / "holes")

    assert message(lambda: read_columns(tmp_path / "holes", "train", "a", ["b"], False)) == (
        f"{tmp_path / 'holes'}: train row 1: an empty text; drop the row or set data.skip_empty = true"
    )
    assert read_columns(tmp_path / "holes", "train", "a", ["b"], True) == (["one"], [["x"]])
