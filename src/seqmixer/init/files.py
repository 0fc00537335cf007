"""What files are: lines, a table or captions; raw text or words already; in which languages."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqmixer.data import kind_of, names_of_columns
from seqmixer.data.steps import languages
from seqmixer.errors import ConfigError, DataError

Ask = Callable[[str], str]  # a question to whoever is there; "" is no answer

SPLITS = {"valid": ("valid", "val", "dev"), "test": ("test",)}  # what their files are called, where others have "train"
STICKS, ALONE = re.compile(r"\w[.,;:!?](?=\s|$)"), re.compile(r"(?:^|\s)[.,;:!?](?=\s|$)")
UNSPACED = 15  # characters between two spaces, on average: a script without any


@dataclass(frozen=True)
class Files:
    """The files of a task, as its [data] has them."""

    data: dict[str, Any]
    languages: list[str]  # what names say of source and target; of those that no rules are known for, nothing


def find(paths: Sequence[Path], columns: Sequence[str], ask: Ask) -> Files:
    """Which task some files are for. Files for validation and test are found beside those called "train"."""
    for path in paths:
        if not path.is_file():
            raise DataError(f"{path}: no such file")
    folder = paths[0].parent
    names = [path.name if path.parent == folder else str(path.resolve()) for path in paths]
    place = {"folder": str(folder)}
    features = [name for name in names if name.endswith((".npy", ".npz"))]
    if features:
        captions = [name for name in names if name not in features]
        if len(features) != 1 or len(captions) != 1:
            raise ConfigError(f"captions are one .json file and one file of features; got {', '.join(names)}")
        return Files({"task": "captions", **place, "captions": captions[0], "features": features[0]}, [])
    data: dict[str, Any] = {"task": "text", **place, "train": names}
    if any(map(kind_of, paths)):
        if len(names) > 1:
            raise ConfigError(f"a table has all columns in one file; got {', '.join(names)}")
        data["columns"] = [*columns] or chosen_columns(paths[0], ask)
    elif len(names) < 2:
        raise ConfigError(
            f"{names[0]} is one file of text; name the source and the target, or a table: .tsv .csv .jsonl"
        )
    for split, called in SPLITS.items():
        others = (named_otherwise(names, word) for word in called)
        data[split] = next((found for found in others if all((folder / name).is_file() for name in found)), [])
    sides = data.get("columns") or [Path(name.removesuffix(".gz")).suffix.removeprefix(".") for name in names]
    return Files(data, [side for side in dict.fromkeys([sides[0], sides[-1]]) if side in languages()])


def named_otherwise(names: Sequence[str], word: str) -> list[str]:
    """
    >>> named_otherwise(["train.de", "train.en"], "dev")
    ['dev.de', 'dev.en']
    """
    return [name.replace("train", word) if "train" in name else "/" for name in names]


def chosen_columns(path: Path, ask: Ask) -> list[str]:
    """The source and the target: there are two, or somebody says which."""
    names = names_of_columns(path)
    if len(names) == 2:
        return names
    question = f"{path.name} has the columns {', '.join(names)}. Which are the source and the target? (two names)"
    answer = ask(question).replace(",", " ").split()
    if not answer:
        raise ConfigError(f"{path} has the columns {', '.join(names)}; say which: --columns SOURCE,TARGET")
    return answer


def raw(texts: Sequence[str]) -> bool:
    """Whether punctuation sticks to words, as people write; in text that is tokenised it stands alone.

    >>> raw(["Two dogs, running."]), raw(["two dogs , running ."])
    (True, False)
    """
    return sum(len(STICKS.findall(text)) for text in texts) > sum(len(ALONE.findall(text)) for text in texts)


def unspaced(texts: Sequence[str]) -> bool:
    return sum(map(len, texts)) > UNSPACED * sum(len(text.split()) for text in texts)


def capitals(texts: Sequence[str]) -> bool:
    return any(text != text.lower() for text in texts)
