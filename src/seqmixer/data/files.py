"""Reading text files, plain or .gz, with errors that name the file and the line."""

import codecs
import gc
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from seqmixer.errors import DataError
from seqmixer.files import opened

ROOM, RATIO = 2**26, 200  # a packed file may unpack to so many bytes, or to so many times its size


def read_utf8(path: Path) -> str:
    """The text of a file, unpacked where its name ends in .gz. A byte order mark is no part of the text."""
    return decoded(read_bytes(path), str(path))


def decoded(content: bytes, where: str) -> str:
    """Bytes as text without a byte order mark; `where` they are from is named in an error."""
    content = content.removeprefix(codecs.BOM_UTF8)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - content.rfind(
            b"\n", 0, error.start
        )  # rfind gives -1 on the first line, so this is 1-based
        raise DataError(
            f"{where}:{line}: not UTF-8 (byte 0x{content[error.start]:02x} at column {column}); "
            "convert the file, for example with iconv"
        ) from None


def read_bytes(path: Path) -> bytes:
    """The content of a file, unpacked where its name ends in .gz or .tgz."""
    with opened(path, DataError, pipes=True) as file:
        content = file.read()
    if path.suffix not in (".gz", ".tgz"):
        return content
    most = max(ROOM, RATIO * len(content))
    try:
        with gzip.open(io.BytesIO(content)) as packed:
            unpacked: bytes = packed.read(most + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}: damaged gzip file ({error}); fetch or pack it again") from None
    if len(unpacked) > most:
        raise DataError(
            f"{path}: unpacks to more than {most:,} bytes, {RATIO} times its size, which no text does; unpack it "
            "yourself if it is right"
        )
    return unpacked


def one_line(text: str) -> str:
    """A line break is a space: every sentence is a line of the files that are written, and of the text that is scored.

    >>> one_line("two\\r\\nlines")
    'two lines'
    """
    return re.sub(r"[\r\n]+", " ", text)


def split_lines(text: str) -> list[str]:
    """The lines of a text. They end in LF or CRLF alone: U+2028 inside a sentence must not shift parallel files."""
    lines = text.removesuffix("\n").split("\n") if text else []
    return [line.removesuffix("\r") for line in lines]


@contextmanager
def collector_paused() -> Iterator[None]:
    """No garbage collection in the block: a corpus is millions of lists without cycles, and each search visits all.

    Usable as a decorator.
    """
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()
