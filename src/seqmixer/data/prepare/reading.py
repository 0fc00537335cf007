"""Finding and reading the files of a corpus: plain, .gz, or members of a .tgz, which is never unpacked to disk."""

import io
import tarfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from seqmixer.data.files import decoded, read_bytes, read_utf8, split_lines
from seqmixer.errors import DataError


def find(folder: Path, *names: str) -> Path:
    """The first file of these names in a folder, plain or .gz."""
    for name in names:
        for path in (folder / name, folder / f"{name}.gz"):
            if path.is_file():
                return path
    allowed = " or ".join(names)
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; it is to hold {allowed}, plain or .gz")
    raise DataError(f"{folder}: no file {allowed}, plain or .gz")


def read_columns(paths: Sequence[Path]) -> list[list[str]]:
    """The lines of files that are aligned."""
    texts = [(str(path), read_utf8(path)) for path in paths]
    return aligned([(where, split_lines(text)) for where, text in texts])


def aligned(columns: Sequence[tuple[str, list[str]]]) -> list[list[str]]:
    """Columns of lines, refused where they have unequal lengths; an error names the first file that differs."""
    first, lines = columns[0]
    for where, column in columns[1:]:
        if len(column) != len(lines):
            raise DataError(
                f"{first} has {len(lines)} lines but {where} has {len(column)}; parallel files need equal counts"
            )
    return [column for _, column in columns]


def read_named(place: Path, archive: str, folder: str, names: Sequence[str]) -> dict[str, str]:
    """The texts of the files `names` of a corpus that comes as an archive with one folder.

    `place` is the archive, the folder, or what holds one of them; the folder is taken first.
    """
    if place.is_file():
        return read_members(place, names)
    for here in (place / folder, place):
        if (here / names[0]).is_file():
            return {name: read_utf8(here / name) for name in names}
    if (place / archive).is_file():
        return read_members(place / archive, names)
    raise DataError(f"{place}: neither {archive} nor a folder with {names[0]} is there")


def read_members(path: Path, names: Sequence[str]) -> dict[str, str]:
    """The texts of members of a .tgz, named by the last part of their path."""
    content = io.BytesIO(read_bytes(path))
    texts = {}
    try:
        with tarfile.open(fileobj=content, mode="r:") as archive:
            for member in archive:
                require_inside(path, member)
                file = archive.extractfile(member) if member.isreg() else None
                name = PurePosixPath(member.name).name
                if file is not None and name in names:
                    texts[name] = decoded(file.read(), f"{path}: {member.name}")
    except tarfile.TarError as error:
        raise DataError(f"{path}: not a tar archive, or an incomplete one ({error}); fetch it again") from None
    for name in names:
        if name not in texts:
            raise DataError(f"{path}: has no {name}; fetch the archive again, or another one")
    return texts


def require_inside(path: Path, member: tarfile.TarInfo) -> None:
    """Refuse paths out of the archive. Nothing is unpacked to disk, but such an archive is not the official one."""
    targets = [member.name, *([member.linkname] if member.islnk() or member.issym() else [])]
    for target in map(PurePosixPath, targets):
        if target.is_absolute() or ".." in target.parts:
            raise DataError(f"{path}: {member.name} points outside the archive ({target}); do not trust this file")
