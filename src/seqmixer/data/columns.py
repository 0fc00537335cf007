"""Text in named columns: tables (.tsv, .csv, .jsonl), and datasets of the `datasets` library (extra `hf`)."""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqmixer.data.files import one_line, read_utf8, split_lines
from seqmixer.data.text import Pairs, require_short
from seqmixer.errors import DataError, missing_extra, unknown
from seqmixer.files import parse_json

if TYPE_CHECKING:
    from datasets import Dataset

NAME = 3  # words that the name of a column has at most
Table = Iterator[tuple[str, Mapping[str, Any]]]  # where each row is, and its cells by column


def read_table(path: Path, source: str | None, references: Sequence[str], skip_empty: bool, max_words: int) -> Pairs:
    """The sentences of a .tsv, .csv or .jsonl file, plain or .gz; else as `read_columns`.

    A table without a line of names has columns "1", "2", ...: if numbers are asked for, all are. A line break in a cell
    is read as a space.
    """
    wanted = [*([] if source is None else [source]), *references]
    rows = KINDS[kind_of(path)](path, read_utf8(path), wanted)
    shortened = ((where, {name: plain_cell(row, name, where, max_words) for name in wanted}) for where, row in rows)
    return pairs_of(shortened, source, references, skip_empty)


def read_columns(path: Path, split: str, source: str | None, references: Sequence[str], skip_empty: bool) -> Pairs:
    """The sentences of a split that `save_to_disk` wrote. With `skip_empty`, only rows with no empty side.

    A column of references holds text, or lists of text. Source None: text to model by itself, with nothing given.
    """
    table = read_split(path, split)
    columns = [*([] if source is None else [source]), *references]
    require_columns(path, columns, table.column_names)
    rows = enumerate(table.select_columns(columns))
    return pairs_of(((f"{path}: {split} row {number}", row) for number, row in rows), source, references, skip_empty)


def pairs_of(rows: Table, source: str | None, references: Sequence[str], skip_empty: bool) -> Pairs:
    sources, groups = [], []
    for where, row in rows:
        given = [] if source is None else texts(row[source])
        group = [text for column in references for text in texts(row[column])]
        if source is not None and len(given) != 1:
            raise DataError(f"{where}: {len(given)} sources in {source!r}; a row has one")
        if usable([*given, *group] if group else [""], where, skip_empty):
            sources += given
            groups.append(group)
    return (None if source is None else sources), groups


def kind_of(path: Path) -> str | None:
    """The kind of table that a file is, by its name; None: lines of text.

    >>> kind_of(Path("talks.tsv.gz")), kind_of(Path("talks.de"))
    ('.tsv', None)
    """
    suffix = Path(path.name.removesuffix(".gz")).suffix
    return suffix if suffix in KINDS else None


def names_of_columns(path: Path) -> list[str]:
    """What the columns of text in a table are called; where its first line has no names but sentences, numbers."""
    _, row = next(KINDS[kind_of(path)](path, read_utf8(path), ()), ("", {}))
    if kind_of(path) == ".jsonl":
        return [name for name, cell in row.items() if isinstance(cell, str | list)]
    return [*(row if any(len(cell.split()) > NAME for cell in row.values()) else row.values())]


def rows_of_tsv(path: Path, text: str, wanted: Sequence[str]) -> Table:
    """Tabs part the cells, and nothing else: a quotation mark is a character as any other."""
    return named(path, ((number, line.split("\t")) for number, line in enumerate(split_lines(text), 1)), wanted)


def rows_of_csv(path: Path, text: str, wanted: Sequence[str]) -> Table:
    """Commas part the cells; one with a comma or a line break is in quotation marks."""
    return named(path, csv_records(path, text), wanted)


def csv_records(path: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    """Each record with the line that it begins on."""
    reader, first = csv.reader(io.StringIO(text, newline=""), strict=True), 1
    try:
        for record in reader:
            yield first, record or [""]
            first = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{path}:{first}: not CSV ({error}); is a quotation mark closed?") from None


def named(path: Path, records: Iterator[tuple[int, list[str]]], wanted: Sequence[str]) -> Table:
    """Rows by the names in the first record; where numbers are asked for, by their place from 1."""
    _, first = next(records, (1, [""]))
    header = first
    if all(map(str.isdecimal, wanted)):
        header = [str(i) for i in range(1, len(first) + 1)]
    require_columns(path, wanted, header)
    if header is not first:
        yield f"{path}:1", dict(zip(header, first, strict=True))
    for number, record in records:
        if record == [""]:
            record = [""] * len(header)  # an empty line
        if len(record) != len(header):
            raise DataError(f"{path}:{number}: {len(record)} cells, where the first line has {len(header)}")
        yield f"{path}:{number}", dict(zip(header, record, strict=True))


def rows_of_jsonl(path: Path, text: str, wanted: Sequence[str]) -> Table:
    """One JSON object a line."""
    for number, line in enumerate(split_lines(text), 1):
        where = f"{path}:{number}"
        try:
            row = parse_json(line or "{}", dict[str, Any], where, DataError)
        except DataError as error:
            raise DataError(str(error).replace(f"{where}:1: not JSON", f"{where}: not JSON")) from None
        if row:
            require_columns(Path(where), wanted, row)
        yield where, row


KINDS: dict[str | None, Callable[[Path, str, Sequence[str]], Table]] = {
    ".tsv": rows_of_tsv,
    ".csv": rows_of_csv,
    ".jsonl": rows_of_jsonl,
}


def require_columns(path: Path, wanted: Sequence[str], there: Iterable[str]) -> None:
    for column in wanted:
        if column not in there:
            raise unknown(f"column of {path}", column, there)


def plain_cell(row: Mapping[str, Any], name: str, where: str, max_words: int) -> list[str]:
    """The texts of a cell, each on one line."""
    found = []
    for text in cell if isinstance(cell := row.get(name), list) else [cell]:
        if not isinstance(text, str | None):
            raise DataError(f"{where}: {name!r} is {text!r}; a column of text has strings, or lists of strings")
        line = one_line(text or "")
        require_short(line, where, max_words)
        found.append(line)
    return found


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
