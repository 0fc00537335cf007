"""COCO from annotations of the official form and a features file."""

import json
import re

import numpy as np
import pytest
import torch

from seqmixer.data import read_features
from seqmixer.data.captions import is_quantised, write_features
from seqmixer.data.prepare import coco
from seqmixer.errors import DataError

SIZES = {"valid": 2, "test": 3}


def refuses(message):
    return pytest.raises(DataError, match=f"^{re.escape(message)}$")


def annotations(path, split, numbers, captions):
    """captions_*.json; captions is {image: [caption, ...]}, their ids in order."""
    texts = [(image, caption) for image, group in captions.items() for caption in group]
    content = {
        "info": {"year": 2014},
        "images": [{"id": i, "file_name": f"COCO_{split}2014_{i:012}.jpg", "license": 1} for i in numbers],
        "annotations": [{"id": n, "image_id": image, "caption": caption} for n, (image, caption) in enumerate(texts)],
    }
    content["annotations"].reverse()
    path.write_text(json.dumps(content))


@pytest.fixture
def folder(tmp_path):
    """Three training images, eight of validation; features whose first value is the image's number."""
    (tmp_path / "annotations").mkdir()
    train = {30: ["A man's T-shirt.", "One, two!"], 10: ["A dog .", "..."]}
    annotations(tmp_path / "annotations/captions_train2014.json", "train", [30, 10, 20], train)
    held_out = {i: [f"Picture {i}."] for i in range(100, 108)}
    annotations(tmp_path / "annotations/captions_val2014.json", "val", [*range(107, 99, -1)], held_out)
    numbers = [105, 10, 20, 30, *(i for i in range(100, 108) if i != 105)]
    write_features(tmp_path / "f.npz", torch.tensor([[i / 100, 0.5] for i in numbers]), quantise=False)
    names = [
        f"train2014/COCO_train2014_{i:012}.jpg" if i < 100 else f"val2014/COCO_val2014_{i:012}.jpg" for i in numbers
    ]
    (tmp_path / "f.names.txt").write_text("".join(f"{name}\n" for name in names))
    return tmp_path


def test_training_images_come_by_id_with_plain_captions_and_their_own_features(folder):
    corpus = coco(folder, folder / "f.npz", SIZES)
    train = [image for image in corpus.images if image.split == "train"]
    assert [(image.id, image.captions) for image in train] == [
        ("COCO_train2014_000000000010.jpg", ["a dog"]),
        ("COCO_train2014_000000000030.jpg", ["a man's t-shirt", "one two"]),
    ]
    for image in corpus.images:
        number = int(image.id[-10:-4])
        torch.testing.assert_close(corpus.features[image.row], torch.tensor([number / 100, 0.5]))
    assert len(corpus.features) == len(corpus.images)
    assert corpus.dropped == {"train": {"captions without words": 1, "images without captions": 1}, "held out": {}}


def test_valid_and_test_are_drawn_from_the_validation_images_by_seed(folder):
    def drawn(seed):
        images = coco(folder, folder / "f.npz", SIZES, seed).images
        return tuple(tuple(image.id for image in images if image.split == split) for split in ("valid", "test"))

    valid, test = drawn(1)
    assert (len(valid), len(test)) == (2, 3)
    assert not set(valid) & set(test)
    assert all(name.startswith("COCO_val2014") for name in (*valid, *test))
    assert drawn(1) == (valid, test)
    assert len({drawn(seed) for seed in range(5)}) > 1


def test_images_without_features_are_counted(folder):
    listed = folder / "f.names.txt"
    listed.write_text(listed.read_text().replace("000000000030", "x"))
    with refuses(
        f"{listed}: 1 of 7 images have no features, the first COCO_train2014_000000000030.jpg; compute them with "
        "`seqmixer data features`"
    ):
        coco(folder, folder / "f.npz", SIZES)


def test_names_that_do_not_fit_the_features_are_refused(folder):
    with (folder / "f.names.txt").open("a") as file:
        file.write("more.jpg\n")
    with refuses(f"{folder}/f.names.txt: 12 names for the 11 rows of {folder}/f.npz; they belong together"):
        coco(folder, folder / "f.npz", SIZES)


def test_two_images_of_one_name_are_refused(folder):
    listed = folder / "f.names.txt"
    listed.write_text(
        listed.read_text().replace("train2014/COCO_train2014_000000000010", "val2014/COCO_val2014_000000000105")
    )
    with refuses(f"{listed}: two images have the same file name; they cannot be told apart in the annotations"):
        coco(folder, folder / "f.npz", SIZES)


@pytest.mark.parametrize(
    "content",
    ["not json", "[]", '{"images": []}', '{"images": [{"id": 1}], "annotations": []}',
     '{"images": [], "annotations": [{"id": 1, "image_id": 1, "caption": 7}]}',
     '{"images": [], "annotations": [{"id": 1, "image_id": [1], "caption": "x"}]}',
     '{"images": [], "annotations": [{"id": null, "image_id": 1, "caption": "x"}]}'],
)  # fmt: skip
def test_annotations_of_another_form_are_refused(folder, content):
    path = folder / "annotations/captions_val2014.json"
    path.write_text(content)
    with refuses(
        f"{path}: not the official form, an object with images (id, file_name) and annotations (id, image_id, caption); "
        "fetch it again"
    ):
        coco(folder, folder / "f.npz", SIZES)


def test_a_caption_of_an_image_that_is_not_there_is_refused(folder):
    path = folder / "annotations/captions_val2014.json"
    annotations(path, "val", [1, 2], {1: ["One."], 3: ["Three."]})
    with refuses(f"{path}: a caption of image 3, which is not among its images; fetch it again"):
        coco(folder, folder / "f.npz", SIZES)


# --- the form of features files


def test_floats_come_back_as_they_were(tmp_path):
    features = torch.randn(3, 4)
    write_features(tmp_path / "f.npz", features, quantise=False)
    assert torch.equal(read_features(tmp_path / "f.npz"), features)
    assert not is_quantised(tmp_path / "f.npz")
    np.save(tmp_path / "f.npy", features.numpy())
    assert not is_quantised(tmp_path / "f.npy")


def test_bytes_are_as_near_as_they_say_and_do_not_drift(tmp_path):
    features = torch.linspace(0, 6, 10_001).view(1, -1)
    write_features(tmp_path / "f.npz", features, quantise=True)
    read = read_features(tmp_path / "f.npz")
    off = (read - features).abs()
    assert off.max() < 0.024
    assert off[features < 0.01].max() < 0.001
    assert is_quantised(tmp_path / "f.npz")
    with np.load(tmp_path / "f.npz") as arrays:
        assert arrays["q"].dtype == np.uint8
        np.testing.assert_allclose(read.numpy(), 6 * (arrays["q"] / 255.0) ** 2, rtol=1e-6)
    write_features(tmp_path / "g.npz", read, quantise=True)
    assert torch.equal(read_features(tmp_path / "g.npz"), read)


def test_features_that_bytes_cannot_hold_are_refused(tmp_path):
    with refuses(f"{tmp_path}/f.npz: features from -1 to 7.5; bytes hold values from 0 to 6, write floats"):
        write_features(tmp_path / "f.npz", torch.tensor([[-1.0, 7.5]]), quantise=True)


def test_a_quantised_corpus_stays_so(folder):
    write_features(folder / "f.npz", read_features(folder / "f.npz"), quantise=True)
    assert coco(folder, folder / "f.npz", SIZES).quantised
