"""Reading files that may be damaged or hostile, and writing files that a crash must not leave half written.

All JSON and TOML is read here: a regular file of bounded size and depth, with values of the expected types, or one line
that says what is wrong. Files of a run are written here: beside their place, flushed to the disk, then renamed.
"""

import hashlib
import json
import os
import re
import stat
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import TypeAdapter, ValidationError

from seqmixer.errors import ConfigError, RunError, SeqmixerError, ran_out

SMALL, LARGE = 2**20, 2**28  # bytes: the most that a TOML file and a JSON file may have
DEPTH = 32  # levels of tables in TOML; the parser of JSON has a limit of its own
PART = r"""(?:(?<![\w-])[\w-]+|"[^"\n]*"|'[^'\n]*')"""
DEEP = re.compile(rf"(?:{PART}[ \t]*\.[ \t]*){{{DEPTH}}}")  # a dotted key: the time to parse it grows with its square
WHERE = re.compile(r"(?:Invalid JSON: )?(.*) at line (\d+) column (\d+)")

Kind = type[SeqmixerError]


def read_bytes(path: Path, error: Kind = RunError, most: int = LARGE) -> bytes:
    """The content of a regular file."""
    with opened(path, error) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise error(f"{path}: larger than {most:,} bytes, the most that such a file may have")
    return content


@contextmanager
def opened(path: Path, error: Kind = RunError, pipes: bool = False) -> Iterator[BinaryIO]:
    """A regular file, or with `pipes` a pipe that has a writer. Anything else (a device) might have no end."""
    try:
        with open(path, "rb", opener=without_waiting) as file:
            mode = os.fstat(file.fileno()).st_mode
            if pipes and stat.S_ISFIFO(mode):
                os.set_blocking(file.fileno(), True)
            elif not stat.S_ISREG(mode):
                raise error(f"{path}: not a regular file")
            yield file
    except FileNotFoundError:
        raise error(f"{path}: no such file") from None
    except OSError as failure:
        if failure.errno is None:  # of whoever reads it
            raise
        raise error(f"{path}: cannot be read ({failure.strerror})") from None


def without_waiting(path: str, flags: int) -> int:
    """An opener that does not wait for the writer of a FIFO."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def read_json(path: Path, shape: Any = Any, error: Kind = RunError) -> Any:
    """The content of a JSON file. `shape` is the type that it must have, such as dict[str, str] or a dataclass."""
    return parse_json(read_bytes(path, error), shape, str(path), error)


def parse_json(text: str | bytes, shape: Any, where: str, error: Kind = RunError) -> Any:
    """The content of a JSON text; `where` it is from is named in an error."""
    try:
        return adapter(shape).validate_json(text, strict=True)
    except ValidationError as wrong:
        raise error(explained(wrong, where)) from None


def checked(value: Any, shape: Any, where: str, error: Kind = RunError) -> Any:
    """Check the type of a value that was read before."""
    return parse_json(json.dumps(value), shape, where, error)


def explained(wrong: ValidationError, where: str) -> str:
    """One line for the first thing wrong."""
    first = wrong.errors(include_url=False)[0]
    if first["type"] != "json_invalid":
        name = ".".join(map(str, first["loc"]))
        return f"{where}: {name + ': ' if name else ''}{first['msg'][:1].lower()}{first['msg'][1:]}"
    found = WHERE.fullmatch(first["msg"])
    if found is None:
        return f"{where}: not JSON ({first['msg']})"
    return f"{where}:{found[2]}: not JSON ({found[1]} at column {found[3]})"


@lru_cache(maxsize=64)
def adapter(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)


def read_toml(path: Path, error: Kind = ConfigError) -> dict[str, Any]:
    """The content of a TOML file. A byte order mark is no part of it."""
    try:
        return parse_toml(read_bytes(path, error, SMALL).decode("utf-8-sig"), str(path), error)
    except ValueError as wrong:
        raise error(f"{path}: not TOML: {wrong}") from None


def parse_toml(text: str, where: str, error: Kind = ConfigError) -> dict[str, Any]:
    """The content of a TOML text; ValueError where it is none."""
    too_deep = error(f"{where}: tables or lists inside each other, deeper than {DEPTH} levels")
    if DEEP.search(text):
        raise too_deep
    try:
        values = tomllib.loads(text)
    except RecursionError:
        raise too_deep from None
    if depth(values) > DEPTH:
        raise too_deep
    return values


def depth(value: Any) -> int:
    """How many tables and lists are inside each other; without recursion.

    >>> depth({"a": [1, {"b": 2}]}), depth(1)
    (3, 0)
    """
    levels, level = 0, [value]
    while level := [each for each in level if isinstance(each, (dict, list))]:
        levels += 1
        level = [inner for each in level for inner in (each.values() if isinstance(each, dict) else each)]
    return levels


def write(path: Path, text: str) -> None:
    """Replace a file atomically."""
    with replacing(path) as new:
        new.write_bytes(text.encode("utf-8"))


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file, which is renamed to `path` when it is complete and on the disk. Links are not followed."""
    new = beside(path)
    new.unlink(missing_ok=True)
    new.touch(exist_ok=False)
    mode = stat.S_IMODE(new.stat().st_mode)
    try:
        yield new
        new.chmod(mode)  # safetensors makes files that only their owner may read
        flush(new)
        os.replace(new, path)
        flush_folder(path.parent)
    finally:
        new.unlink(missing_ok=True)


def beside(path: Path) -> Path:
    """The name of the temporary file, with the process id: two processes may write the same file."""
    return path.with_name(f".{os.getpid()}.new.{path.name}")  # numpy asks for its suffix


def flush(path: Path) -> None:
    """Force a file to the disk."""
    handle = os.open(path, os.O_RDWR)  # Windows flushes no file that is open for reading
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def flush_folder(path: Path) -> None:
    """Force the names in a folder to the disk, on systems that can."""
    if os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def foreign(path: str, what: str) -> Iterator[None]:
    """Run code of another library on its own files: any exception becomes an error of one line.

    Their JSON is read here first: the library's own parser may have no limits.
    """
    for file in sorted(Path(path).glob("*.json")):
        read_json(file, error=ConfigError)
    try:
        yield
    except SeqmixerError:
        raise
    except Exception as error:
        if ran_out(error):
            raise
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ConfigError(f"{what}: {lines[0]}") from error


def sha256(path: Path) -> str:
    with open(path, "rb", opener=without_waiting) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
