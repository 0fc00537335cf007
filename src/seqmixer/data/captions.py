"""Images as feature vectors (.npy, .npz) and their captions (JSON)."""

import re
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmixer.data.cropping import length_covering
from seqmixer.data.files import read_utf8
from seqmixer.data.task import Split, Task
from seqmixer.data.text import Vocabs, encoded_groups
from seqmixer.data.vocab import Vocab, Vocabulary
from seqmixer.errors import DataError
from seqmixer.files import opened, parse_json

SPLITS = ("train", "valid", "test")
SPELLINGS = {"train": "train", "valid": "valid", "val": "valid", "test": "test"}  # COCO's files say val


@dataclass(frozen=True)
class Captioned:
    """One image and its captions."""

    id: str
    row: int  # of the image in the features
    split: str  # train, valid or test
    captions: list[str]


def read_captions(path: Path) -> list[Captioned]:
    """Read a JSON file, plain or .gz: a list of entries, or an object that has it as "images".

    An entry is {"id": "12.jpg", "row": 0, "split": "train", "captions": ["A dog runs.", ...]}, with the split train,
    valid (or val) or test. Errors count entries from 1.
    """
    content = parse_json(read_utf8(path), Any, str(path), DataError)
    entries = content.get("images") if isinstance(content, dict) else content
    if not isinstance(entries, list):
        raise DataError(f'{path}: no list of entries; the file is such a list or an object with one as "images"')
    return [_captioned(entry, f"{path}: entry {number}") for number, entry in enumerate(entries, 1)]


def read_features(path: Path) -> Tensor:
    """Read image features.  -> (n, D) float32

    .npy holds one array of floats. So does .npz, unless its array is named `q`: then it holds bytes, each the
    feature 6 * (q / 255) ** 2, a quarter of the size of floats and finest near zero, where most features are.
    """
    if not path.exists():
        raise DataError(f"{path}: no such file")
    if path.suffix not in (".npy", ".npz"):
        raise DataError(f"{path}: not a features file; allowed are .npy and .npz")
    try:
        array = _single_array(path)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error):
        raise DataError(f"{path}: damaged, or not a numpy file of plain numbers") from None
    if not np.issubdtype(array.dtype, np.floating):
        raise DataError(
            f"{path}: features of type {array.dtype}; allowed are floats, or uint8 in an .npz array named q"
        )
    if array.ndim != 2 or not array.shape[1]:
        raise DataError(f"{path}: features of shape {array.shape}; they are 2-D, one row an image")
    finite = np.isfinite(array).all(axis=1)
    if not finite.all():
        raise DataError(f"{path}: row {int(np.argmin(finite))} has a feature that is not finite")
    return torch.from_numpy(array.astype(np.float32))


def write_features(path: Path, features: Tensor, quantise: bool) -> None:
    """Write an .npz that `read_features` reads: floats, or bytes (`quantise`), which hold values from 0 to 6.

    A byte is off by at most 0.024, and by less than a thousandth below 0.01.
    """
    if not quantise:
        np.savez(path, features=features.numpy())
        return
    if features.min() < 0 or features.max() > 6:
        raise DataError(
            f"{path}: features from {features.min():.3g} to {features.max():.3g}; bytes hold values from 0 to 6, "
            "write floats"
        )
    np.savez_compressed(path, q=(255 * (features / 6).sqrt()).round().to(torch.uint8).numpy())


def is_quantised(path: Path) -> bool:
    """Whether a features file that `read_features` reads holds bytes."""
    if path.suffix != ".npz":
        return False
    with np.load(path, allow_pickle=False) as arrays:
        return arrays.files == ["q"] and arrays["q"].dtype == np.uint8


def captions_task(
    name: str,
    captions: Sequence[Captioned],
    features: Tensor,
    *,
    length: int | None,
    min_count: int = 1,
    max_size: int | None = None,
    vocabs: Vocabs | None = None,
    read: Callable[[str], str] | None = None,
) -> Task:
    """The vocabulary of the training captions (or `vocabs`, that of a saved run), and the splits encoded with it.

    `length` is T; None takes the smallest that holds 95 % of the training captions. `read` is done with each caption
    before it is anything else; None: `plain`.
    """
    read = read or plain
    for image in captions:
        if not 0 <= image.row < len(features):
            raise DataError(
                f"{name}: image {image.id}: row {image.row} is outside the {len(features)} rows of features"
            )
    groups = {split: [image for image in captions if image.split == split] for split in SPLITS}
    for split, group in groups.items():
        if not group:
            raise DataError(f"{name}: the {split} split is empty")
    if vocabs is None:
        sentences = (read(caption) for image in groups["train"] for caption in image.captions)
        vocabs = None, Vocab.build(sentences, min_count, max_size)
    source_vocab, vocab = vocabs
    if source_vocab is not None:
        raise DataError("images need no source vocabulary; the vocabularies belong to another kind of task")
    train, valid, test = (_encoded(groups[split], features, vocab, read) for split in SPLITS)
    chosen = length_covering(train) if length is None else length
    return Task(name, train, valid, test, None, vocab, chosen)


def plain(caption: str) -> str:
    """Lower case, and nothing but words: runs of letters and digits, which ' and - may join.

    >>> plain('A man\\'s T-shirt, size 10 ("large").')
    "a man's t-shirt size 10 large"
    """
    return " ".join(re.findall(r"[^\W_]+(?:['-][^\W_]+)*", caption.lower()))


def _encoded(group: Sequence[Captioned], features: Tensor, vocab: Vocabulary, read: Callable[[str], str]) -> Split:
    texts = [[read(caption) for caption in image.captions] for image in group]
    return Split(
        sources=features[torch.tensor([image.row for image in group])],  # (n, D)
        references=encoded_groups(texts, vocab),
        meta=[{"source": image.id, "references": references} for image, references in zip(group, texts, strict=True)],
    )


def _single_array(path: Path) -> np.ndarray:
    with opened(path, DataError) as file:  # np.load leaves a damaged .npz open if it opens it itself
        loaded = np.load(file, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        if len(loaded.files) != 1:
            raise DataError(f"{path}: {len(loaded.files)} arrays ({', '.join(loaded.files)}); a features file has one")
        (name,) = loaded.files
        array: np.ndarray = loaded[name]
    if name == "q" and array.dtype == np.uint8:
        array = 6 * np.square(array.astype(np.float32) / 255)
    return array


def _captioned(entry: Any, place: str) -> Captioned:
    """Check one entry of the JSON file; `place` says which in an error."""
    if not isinstance(entry, dict):
        raise DataError(f"{place}: not an object; an entry has id, row, split and captions")
    for key in ("id", "row", "split", "captions"):
        if key not in entry:
            raise DataError(f"{place}: no key {key!r}; an entry has id, row, split and captions")
    row, split, captions = entry["row"], entry["split"], entry["captions"]
    if type(row) is not int:
        raise DataError(f"{place}: row is {row!r}; it is the number of the image's row in the features, an integer")
    if not isinstance(split, str) or split not in SPELLINGS:
        raise DataError(f"{place}: unknown split {split!r}; known: {', '.join(SPELLINGS)}")
    if not isinstance(captions, list) or not all(isinstance(caption, str) for caption in captions):
        raise DataError(f"{place}: captions is not a list of strings")
    if not captions:
        raise DataError(f"{place}: no captions; give at least one or drop the entry")
    for caption in captions:
        if not plain(caption):
            raise DataError(f"{place}: no words in the caption {caption!r}; drop it")
    return Captioned(str(entry["id"]), row, SPELLINGS[split], captions)
