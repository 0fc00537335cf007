"""A dataset of the `datasets` library, saved on the disk, by the names of its splits and columns (extra `hf`)."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqmixer.data.text import Pairs
from seqmixer.errors import DataError, missing_extra, unknown

if TYPE_CHECKING:
    from datasets import Dataset


def read_columns(path: Path, split: str, source: str | None, references: Sequence[str], skip_empty: bool) -> Pairs:
    """The sentences of a split that `save_to_disk` wrote. With `skip_empty`, only rows with no empty side.

    A column of references holds text, or lists of text. Source None: text to model by itself, with nothing given.
    """
    table = read_split(path, split)
    columns = [*([] if source is None else [source]), *references]
    for column in columns:
        if column not in table.column_names:
            raise unknown(f"column of {path}", column, table.column_names)
    sources, groups = [], []
    for number, row in enumerate(table.select_columns(columns)):
        given = [] if source is None else texts(row[source])
        group = [text for column in references for text in texts(row[column])]
        if source is not None and len(given) != 1:
            raise DataError(f"{path}: {split} row {number}: {len(given)} sources in {source!r}; a row has one")
        if usable([*given, *group] if group else [""], f"{path}: {split} row {number}", skip_empty):
            sources += given
            groups.append(group)
    return (None if source is None else sources), groups


def read_split(path: Path, split: str) -> "Dataset":
    try:
        from datasets import load_from_disk
    except ImportError:
        raise missing_extra("data.task = 'dataset' needs datasets", "hf") from None
    try:
        splits = load_from_disk(str(path))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is no dataset that `save_to_disk` wrote: {str(error).splitlines()[0]}") from None
    if split not in splits:
        raise unknown(f"split of {path}", split, map(str, splits))
    return splits[split]


def texts(cell: Any) -> list[str]:
    """One text or several; where there is no value, an empty one."""
    return ["" if text is None else str(text) for text in (cell if isinstance(cell, list) else [cell])]


def usable(row: list[str], where: str, skip_empty: bool) -> bool:
    full = all(text.strip() for text in row)
    if not full and not skip_empty:
        raise DataError(f"{where}: an empty text; drop the row or set data.skip_empty = true")
    return full
