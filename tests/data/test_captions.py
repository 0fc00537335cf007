"""Image captions: files, errors, tasks."""

import gzip
import json
import re

import numpy as np
import pytest
import torch

from seqmixer.data import Captioned, Vocab, captions_task, coverage, in_order, read_captions, read_features
from seqmixer.data.captions import plain
from seqmixer.errors import DataError
from seqmixer.types import EOS, UNK


def refuses(message):
    return pytest.raises(DataError, match=f"^{re.escape(message)}$")


def entry(**changes):
    return {"id": "1.jpg", "row": 0, "split": "train", "captions": ["A dog."]} | changes


def write(path, content):
    path.write_text(json.dumps(content))
    return path


# --- captions


@pytest.mark.parametrize(
    ("caption", "words"),
    [
        ("A black dog .", "a black dog"),
        ("A man's T-shirt, size 10!", "a man's t-shirt size 10"),
        ("red,white", "red white"),
        ("'quoted' -- \"words\" - dash-", "quoted words dash"),
        ("Ein Café_Schild\n", "ein café schild"),
        ("...", ""),
    ],
)
def test_captions_are_lower_case_words_without_punctuation(caption, words):
    assert plain(caption) == words


def test_captions_are_read_from_a_list_or_an_object_packed_or_not(tmp_path):
    entries = [entry(), entry(id=7, row=2, split="val", captions=["One.", "Two."])]
    expected = [Captioned("1.jpg", 0, "train", ["A dog."]), Captioned("7", 2, "valid", ["One.", "Two."])]
    assert read_captions(write(tmp_path / "list.json", entries)) == expected
    assert read_captions(write(tmp_path / "object.json", {"images": entries})) == expected
    (tmp_path / "list.json.gz").write_bytes(gzip.compress((tmp_path / "list.json").read_bytes()))
    assert read_captions(tmp_path / "list.json.gz") == expected


def test_a_missing_captions_file_is_named(tmp_path):
    with refuses(f"{tmp_path}/c.json: no such file"):
        read_captions(tmp_path / "c.json")


def test_text_that_is_not_json_is_refused_with_its_line(tmp_path):
    (tmp_path / "c.json").write_text('[\n{"id": 1,}]')
    reason = re.escape(f"{tmp_path}/c.json:2: not JSON (")
    with pytest.raises(DataError, match=rf"^{reason}.+ at column \d+\)$"):  # the words inside are Python's
        read_captions(tmp_path / "c.json")


@pytest.mark.parametrize("content", [7, {"pictures": []}, {"images": {}}])
def test_a_file_without_a_list_is_refused(tmp_path, content):
    path = write(tmp_path / "c.json", content)
    with refuses(f'{path}: no list of entries; the file is such a list or an object with one as "images"'):
        read_captions(path)


@pytest.mark.parametrize("key", ["id", "row", "split", "captions"])
def test_a_missing_key_is_named_with_its_entry(tmp_path, key):
    path = write(tmp_path / "c.json", [entry(), {k: v for k, v in entry().items() if k != key}])
    with refuses(f"{path}: entry 2: no key '{key}'; an entry has id, row, split and captions"):
        read_captions(path)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("a dog", "not an object; an entry has id, row, split and captions"),
        (entry(row="0"), "row is '0'; it is the number of the image's row in the features, an integer"),
        (entry(row=True), "row is True; it is the number of the image's row in the features, an integer"),
        (entry(split="dev"), "unknown split 'dev'; known: train, valid, val, test"),
        (entry(split=[]), "unknown split []; known: train, valid, val, test"),
        (entry(captions="A dog."), "captions is not a list of strings"),
        (entry(captions=["A dog.", 3]), "captions is not a list of strings"),
        (entry(captions=[]), "no captions; give at least one or drop the entry"),
        (entry(captions=["A dog.", "!"]), "no words in the caption '!'; drop it"),
    ],
)
def test_a_wrong_entry_is_refused(tmp_path, wrong, message):
    path = write(tmp_path / "c.json", [entry(), wrong])
    with refuses(f"{path}: entry 2: {message}"):
        read_captions(path)


# --- features


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_float_features_are_read_as_float32(tmp_path, dtype):
    array = np.random.default_rng(0).normal(size=(3, 4)).astype(dtype)
    np.save(tmp_path / "f.npy", array)
    np.savez(tmp_path / "f.npz", anything=array)
    for name in ("f.npy", "f.npz"):
        features = read_features(tmp_path / name)
        assert features.dtype == torch.float32
        assert features.numpy() == pytest.approx(array)


def test_bytes_named_q_are_six_times_the_square_of_their_share(tmp_path):
    np.savez_compressed(tmp_path / "f.npz", q=np.array([[0, 51, 255]], dtype=np.uint8))
    assert read_features(tmp_path / "f.npz").tolist() == [pytest.approx([0, 6 * 0.2**2, 6])]


def test_floats_named_q_are_taken_as_they_are(tmp_path):
    np.savez(tmp_path / "f.npz", q=np.array([[0.5, 2.0]]))
    assert read_features(tmp_path / "f.npz").tolist() == [[0.5, 2.0]]


def test_a_missing_features_file_is_named(tmp_path):
    with refuses(f"{tmp_path}/f.npy: no such file"):
        read_features(tmp_path / "f.npy")


def test_another_kind_of_file_is_refused(tmp_path):
    (tmp_path / "f.csv").write_text("1,2")
    with refuses(f"{tmp_path}/f.csv: not a features file; allowed are .npy and .npz"):
        read_features(tmp_path / "f.csv")


@pytest.mark.parametrize("name", ["f.npy", "f.npz"])
@pytest.mark.parametrize("damage", ["empty", "text", "cut", "pickled"])
def test_a_damaged_features_file_is_refused(tmp_path, name, damage):
    path = tmp_path / name
    array = np.array([[None]]) if damage == "pickled" else np.ones((50, 50))
    np.save(path, array) if name == "f.npy" else np.savez(path, f=array)
    if damage != "pickled":
        path.write_bytes({"empty": b"", "text": b"hello", "cut": path.read_bytes()[:-300]}[damage])
    with refuses(f"{path}: damaged, or not a numpy file of plain numbers"):
        read_features(path)


def test_several_arrays_are_refused(tmp_path):
    np.savez(tmp_path / "f.npz", a=np.ones((1, 2)), b=np.ones((1, 2)))
    with refuses(f"{tmp_path}/f.npz: 2 arrays (a, b); a features file has one"):
        read_features(tmp_path / "f.npz")


def test_features_of_another_type_are_refused(tmp_path):
    np.save(tmp_path / "f.npy", np.ones((2, 2), dtype=np.uint8))
    message = "features of type uint8; allowed are floats, or uint8 in an .npz array named q"
    with refuses(f"{tmp_path}/f.npy: {message}"):
        read_features(tmp_path / "f.npy")


@pytest.mark.parametrize("shape", [(2, 3, 4), (2,), (2, 0)])
def test_features_that_are_not_a_table_are_refused(tmp_path, shape):
    np.save(tmp_path / "f.npy", np.ones(shape))
    with refuses(f"{tmp_path}/f.npy: features of shape {shape}; they are 2-D, one row an image"):
        read_features(tmp_path / "f.npy")


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_features_that_are_not_finite_are_refused(tmp_path, bad):
    np.save(tmp_path / "f.npy", np.array([[0.0, 1.0], [2.0, bad]]))
    with refuses(f"{tmp_path}/f.npy: row 1 has a feature that is not finite"):
        read_features(tmp_path / "f.npy")


# --- tasks

FEATURES = torch.arange(12.0).view(4, 3)  # (n, D)
IMAGES = [
    Captioned("a", 3, "train", ["A dog.", "One dog!"]),
    Captioned("b", 1, "test", ["A fish."]),
    Captioned("c", 0, "train", ["A cat sleeps."]),
    Captioned("d", 2, "valid", ["A cat."]),
]


def test_a_task_has_the_features_and_captions_of_each_split():
    task = captions_task("pets", IMAGES, FEATURES, length=6)
    assert task.train.sources.tolist() == FEATURES[[3, 0]].tolist()
    assert task.test.sources.tolist() == FEATURES[[1]].tolist()
    assert task.train.meta == [
        {"source": "a", "references": ["a dog", "one dog"]},
        {"source": "c", "references": ["a cat sleeps"]},
    ]
    assert [task.target_vocab.decode(ids) for ids in task.train.references[0]] == ["a dog", "one dog"]
    assert (task.source_vocab, task.features, task.length) == (None, 3, 6)


def test_the_vocabulary_comes_from_the_training_captions_and_its_limits():
    assert captions_task("pets", IMAGES, FEATURES, length=6).target_vocab == Vocab.build(
        ["a dog", "one dog", "a cat sleeps"]
    )
    assert captions_task("pets", IMAGES, FEATURES, length=6, min_count=2).target_vocab.words[4:] == ("a", "dog")
    limited = captions_task("pets", IMAGES, FEATURES, length=6, max_size=1)
    assert limited.target_vocab.words[4:] == ("a",)
    assert limited.test.references == [[[4, UNK, EOS]]]


def test_given_vocabularies_are_used_as_they_are():
    vocab = Vocab.build(["fish"])
    task = captions_task("pets", IMAGES, FEATURES, length=6, vocabs=(None, vocab))
    assert task.target_vocab == vocab
    assert task.test.references == [[[UNK, 4, EOS]]]


def test_vocabularies_of_a_text_task_are_refused():
    vocab = Vocab.build(["fish"])
    with refuses("images need no source vocabulary; the vocabularies belong to another kind of task"):
        captions_task("pets", IMAGES, FEATURES, length=6, vocabs=(vocab, vocab))


def test_a_task_without_a_length_holds_95_percent_of_the_training_captions():
    task = captions_task("pets", IMAGES, FEATURES, length=None)
    assert task.length == 4  # a cat sleeps, EOS
    assert coverage(task.train, 3) == pytest.approx(2 / 3)


@pytest.mark.parametrize("row", [4, -1])
def test_a_row_outside_the_features_is_refused(row):
    images = [*IMAGES, Captioned("e", row, "test", ["A dog."])]
    with refuses(f"pets: image e: row {row} is outside the 4 rows of features"):
        captions_task("pets", images, FEATURES, length=6)


@pytest.mark.parametrize("empty", ["train", "valid", "test"])
def test_an_empty_split_is_refused(empty):
    images = [image for image in IMAGES if image.split != empty]
    with refuses(f"pets: the {empty} split is empty"):
        captions_task("pets", images, FEATURES, length=6)


def test_batches_of_a_caption_task_hold_features_and_all_captions():
    task = captions_task("pets", IMAGES, FEATURES, length=4)
    (batch,) = in_order(task.train, 2, task.length)
    assert batch.source.tolist() == FEATURES[[3, 0]].tolist()  # (B, D)
    texts = [[task.target_vocab.decode(row) for row in group] for group in batch.references.tolist()]
    assert texts == [["a dog", "one dog"], ["a cat sleeps", ""]]


@pytest.mark.realdata
def test_flickr8k_is_read_whole(real_data):
    folder = real_data("flickr8k")
    images, features = read_captions(folder / "captions.json.gz"), read_features(folder / "features_u8.npz")
    task = captions_task("flickr8k", images, features, length=None, min_count=5)
    assert [len(task.train), len(task.valid), len(task.test)] == [6_000, 1_000, 1_000]
    assert {len(group) for group in task.train.references} == {5}
    assert task.features == 1280
