"""Writing a prepared corpus: a folder that is complete or not there, with a card that says what is in it."""

import gzip
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from seqmixer import files
from seqmixer.data.captions import captions_task, write_features
from seqmixer.data.cards import Card, Origin, as_json, as_markdown, describe
from seqmixer.data.files import collector_paused
from seqmixer.data.prepare.corpus import CaptionCorpus, Pair, TextCorpus
from seqmixer.data.text import Pairs, encode_split, text_task
from seqmixer.errors import DataError

SPLITS = ("train", "valid", "test")


@collector_paused()
def write_text(corpus: TextCorpus, out: Path, command: str) -> Card:
    """Write SPLIT.SUFFIX.gz for each split and side, as data.task = "text" reads them, and the card."""
    columns = {split: parallel(pairs) for split, pairs in corpus.splits.items()}
    task = text_task(corpus.name, *(columns[split] for split in SPLITS), length=None)
    further = {
        split: encode_split(*pairs, task.source_vocab, task.target_vocab)
        for split, pairs in columns.items()
        if split not in SPLITS
    }
    names = {split: [f"{split}.{suffix}.gz" for suffix in corpus.suffixes] for split in corpus.splits}
    settings = {"task": "text", "folder": str(out), **{split: names[split] for split in SPLITS}}
    card = describe(task, further, Origin(command, corpus.dropped, corpus.published, settings))
    with new_folder(out) as folder:
        for split, pairs in corpus.splits.items():
            for side, name in enumerate(names[split]):
                text = "".join(f"{pair[side]}\n" for pair in pairs)
                (folder / name).write_bytes(gzip.compress(text.encode("utf-8"), mtime=0))  # same text, same bytes
        write_card(folder, card)
    return card


@collector_paused()
def write_captions(corpus: CaptionCorpus, out: Path, command: str) -> Card:
    """Write captions.json and features.npz, as data.task = "captions" reads them, and the card."""
    task = captions_task(corpus.name, corpus.images, corpus.features, length=None)
    settings = {"task": "captions", "folder": str(out), "captions": "captions.json", "features": "features.npz"}
    card = describe(task, {}, Origin(command, corpus.dropped, corpus.published, settings))
    with new_folder(out) as folder:
        entries = ",\n".join(json.dumps(asdict(image), ensure_ascii=False) for image in corpus.images)
        (folder / "captions.json").write_text(f"[\n{entries}\n]\n", encoding="utf-8")
        write_features(folder / "features.npz", corpus.features, corpus.quantised)
        write_card(folder, card)
    return card


def write_card(folder: Path, card: Card) -> None:
    (folder / "card.json").write_text(as_json(card) + "\n", encoding="utf-8")
    (folder / "card.md").write_text(as_markdown(card), encoding="utf-8")


def parallel(pairs: Sequence[Pair]) -> Pairs:
    return [source for source, _ in pairs], [[target] for _, target in pairs]


def require_new(out: Path) -> None:
    """Refuse to overwrite anything; called before the work begins, too."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DataError(f"{out} is there already, and not an empty folder; choose another --out, or remove it")


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A folder to fill, which gets its name when it is complete. A killed program leaves `.NAME.part-...` at most."""
    require_new(out)
    part = out.parent / f".{out.name}.part-{os.getpid()}"
    try:
        part.mkdir(parents=True)
        yield part
        os.rename(part, out)
    except OSError as error:
        raise DataError(f"{out} cannot be written: {error.strerror or error}; nothing of it is left") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file to write, which takes the name `path` only when it is complete."""
    try:
        with files.replacing(path) as new:
            yield new
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror or error}") from error
