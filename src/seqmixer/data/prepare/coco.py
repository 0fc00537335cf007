"""MSCOCO 2014 captions as the paper has them (Sec. 4.3): the full training set, and 5,000 + 5,000 validation images.

The official annotations are {"images": [{"id", "file_name"}], "annotations": [{"id", "image_id", "caption"}]}.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from seqmixer.data.captions import Captioned, is_quantised, plain, read_features
from seqmixer.data.files import read_utf8, split_lines
from seqmixer.data.prepare.corpus import CaptionCorpus, draw
from seqmixer.data.prepare.reading import find
from seqmixer.errors import DataError
from seqmixer.files import parse_json

PUBLISHED = {"valid": 5_000, "test": 5_000}  # of train the paper says "around 80k"
Described = tuple[str, list[str]]  # the file name of an image, and its captions


def coco(folder: Path, features: Path, sizes: Mapping[str, int] = PUBLISHED, seed: int = 1) -> CaptionCorpus:
    """Read annotations/captions_{train,val}2014.json of `folder`, and the features that `write_features` wrote.

    Captions become lower-case words without punctuation. Rows of images that no split has are dropped.
    """
    train, dropped_train = described(find(folder, "annotations/captions_train2014.json"))
    held_out, dropped_held_out = described(find(folder, "annotations/captions_val2014.json"))
    samples = draw(len(held_out), sizes, seed, "images of captions_val2014.json")
    groups = {"train": train, **{split: [held_out[i] for i in sample] for split, sample in samples.items()}}

    chosen = [(split, name, captions) for split, group in groups.items() for name, captions in group]
    rows = rows_of((name for _, name, _ in chosen), features)
    images = [Captioned(name, row, split, captions) for row, (split, name, captions) in enumerate(chosen)]
    return CaptionCorpus(
        name="coco",
        images=images,
        features=read_features(features)[torch.tensor(rows)],  # (n, D)
        quantised=is_quantised(features),
        dropped={"train": dropped_train, "held out": dropped_held_out},
        published=PUBLISHED,
    )


def described(path: Path) -> tuple[list[Described], dict[str, int]]:
    """The images of an annotation file by their id with the words of their captions, and what was dropped."""
    images, annotations = parsed(path)
    captions: dict[int, list[str]] = defaultdict(list)
    empty = 0
    for annotation in sorted(annotations, key=lambda annotation: annotation["id"]):
        words = plain(annotation["caption"])
        empty += not words
        captions[annotation["image_id"]] += [words] if words else []
    unknown = captions.keys() - images.keys()
    if unknown:
        raise DataError(f"{path}: a caption of image {min(unknown)}, which is not among its images; fetch it again")
    kept = [(name, captions[number]) for number, name in sorted(images.items()) if captions[number]]
    counts = {"captions without words": empty, "images without captions": len(images) - len(kept)}
    return kept, {reason: count for reason, count in counts.items() if count}


def parsed(path: Path) -> tuple[dict[int, str], list[dict[str, Any]]]:
    """The file names of the images by id, and the annotations."""
    try:
        content = parse_json(read_utf8(path), Any, str(path), DataError)
        images = {int(image["id"]): str(image["file_name"]) for image in content["images"]}
        keys = ("id", "image_id", "caption")
        annotations = [{key: annotation[key] for key in keys} for annotation in content["annotations"]]
        numbers = [each[key] for each in annotations for key in ("id", "image_id")]
        valid = all(type(number) is int for number in numbers) and all(
            type(each["caption"]) is str for each in annotations
        )
    except (DataError, ValueError, KeyError, TypeError):
        valid = False
    if not valid:
        raise DataError(
            f"{path}: not the official form, an object with images (id, file_name) and annotations (id, image_id, "
            "caption); fetch it again"
        )
    return images, annotations


def rows_of(names: Iterable[str], features: Path) -> list[int]:
    """The rows of images in a features file, by the list of file names beside it."""
    listed = features.with_suffix(".names.txt")
    paths = split_lines(read_utf8(listed))
    rows = {Path(path).name: row for row, path in enumerate(paths)}
    if len(rows) != len(paths):
        raise DataError(f"{listed}: two images have the same file name; they cannot be told apart in the annotations")
    wanted = list(names)
    missing = [name for name in wanted if name not in rows]
    if missing:
        raise DataError(
            f"{listed}: {len(missing)} of {len(wanted)} images have no features, the first {missing[0]}; compute them "
            "with `seqmixer data features`"
        )
    count = len(read_features(features))
    if count != len(rows):
        raise DataError(f"{listed}: {len(rows)} names for the {count} rows of {features}; they belong together")
    return [rows[name] for name in wanted]
