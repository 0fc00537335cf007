"""Files of a corpus: found, unpacked and checked, with every fault named in one line."""

import gzip
import io
import re
import tarfile

import pytest

from seqmixer.data.prepare.reading import aligned, find, read_columns, read_named
from seqmixer.errors import DataError


def refuses(message):
    return pytest.raises(DataError, match=f"^{re.escape(message)}$")


def pack(path, members):
    """A .tgz of {name: text}; a value that is a tuple is a link of that kind to that name."""
    with tarfile.open(path, "w:gz") as archive:
        for name, value in members.items():
            member = tarfile.TarInfo(name)
            if isinstance(value, tuple):
                member.type, member.linkname = value
                archive.addfile(member)
            else:
                content = value.encode()
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return path


def test_a_plain_file_is_found_before_a_packed_one_and_the_first_name_before_the_second(tmp_path):
    for name in ("a", "a.gz", "b"):
        (tmp_path / name).touch()
    assert find(tmp_path, "a", "b") == tmp_path / "a"
    assert find(tmp_path, "b", "a") == tmp_path / "b"
    (tmp_path / "a").unlink()
    assert find(tmp_path, "a", "b") == tmp_path / "a.gz"


def test_a_missing_file_and_a_missing_folder_are_named(tmp_path):
    with refuses(f"{tmp_path}: no file train.de or train.ger, plain or .gz"):
        find(tmp_path, "train.de", "train.ger")
    with refuses(f"{tmp_path}/none: no such folder; it is to hold train.de, plain or .gz"):
        find(tmp_path / "none", "train.de")


def test_files_that_are_not_aligned_are_refused(tmp_path):
    (tmp_path / "x").write_text("1\n2\n")
    (tmp_path / "y.gz").write_bytes(gzip.compress(b"1\n2\n3\n"))
    with refuses(f"{tmp_path}/x has 2 lines but {tmp_path}/y.gz has 3; parallel files need equal counts"):
        read_columns([tmp_path / "x", tmp_path / "y.gz"])
    assert aligned([("x", ["1"]), ("y", ["2"])]) == [["1"], ["2"]]


def test_an_archive_and_its_folder_hold_the_same_wherever_one_points(tmp_path):
    archive = pack(tmp_path / "c.tgz", {"./c/one": "1\n", "c/two": "2\n", "c/other": "3\n"})
    (tmp_path / "unpacked" / "c").mkdir(parents=True)
    (tmp_path / "unpacked" / "c" / "one").write_text("1\n")
    (tmp_path / "unpacked" / "c" / "two").write_text("2\n")
    for place in (archive, tmp_path, tmp_path / "unpacked", tmp_path / "unpacked" / "c"):
        assert read_named(place, "c.tgz", "c", ["one", "two"]) == {"one": "1\n", "two": "2\n"}


def test_a_place_without_the_corpus_is_refused(tmp_path):
    with refuses(f"{tmp_path}: neither c.tgz nor a folder with one is there"):
        read_named(tmp_path, "c.tgz", "c", ["one"])


def test_an_archive_without_a_member_is_refused(tmp_path):
    archive = pack(tmp_path / "c.tgz", {"c/one": "1\n"})
    with refuses(f"{archive}: has no two; fetch the archive again, or another one"):
        read_named(archive, "c.tgz", "c", ["one", "two"])


def test_a_truncated_archive_is_refused_wherever_it_ends(tmp_path):
    archive = pack(tmp_path / "c.tgz", {f"c/{i}": f"{i} {hash(str(i))}\n" * 50 for i in range(20)})
    whole = archive.read_bytes()
    for end in range(1, len(whole), 97):
        archive.write_bytes(whole[:end])
        with pytest.raises(
            DataError, match=rf"^{re.escape(str(archive))}: damaged gzip file \(.+\); fetch or pack it again$"
        ):
            read_named(archive, "c.tgz", "c", ["0"])


def test_a_packed_file_that_is_no_archive_is_refused(tmp_path):
    (tmp_path / "c.tgz").write_bytes(gzip.compress(b"no archive" * 100))
    with pytest.raises(
        DataError,
        match=rf"^{re.escape(str(tmp_path))}/c.tgz: not a tar archive, or an incomplete one \(.+\); fetch it again$",
    ):
        read_named(tmp_path, "c.tgz", "c", ["0"])


def test_an_archive_that_was_cut_before_it_was_packed_is_refused(tmp_path):
    archive = pack(tmp_path / "c.tgz", {"c/one": "word " * 1000})
    archive.write_bytes(gzip.compress(gzip.decompress(archive.read_bytes())[:1000]))
    with pytest.raises(
        DataError, match=rf"^{re.escape(str(archive))}: not a tar archive, or an incomplete one \(.+\); fetch it again$"
    ):
        read_named(archive, "c.tgz", "c", ["one"])


@pytest.mark.parametrize(
    ("member", "value", "target"),
    [
        ("../one", "1\n", "../one"),
        ("/etc/one", "1\n", "/etc/one"),
        ("c/one", (tarfile.SYMTYPE, "../../secret"), "../../secret"),
        ("c/one", (tarfile.LNKTYPE, "/etc/passwd"), "/etc/passwd"),
    ],
)
def test_a_member_that_points_outside_is_refused(tmp_path, member, value, target):
    archive = pack(tmp_path / "c.tgz", {member: value})
    with refuses(f"{archive}: {member} points outside the archive ({target}); do not trust this file"):
        read_named(archive, "c.tgz", "c", ["one"])


def test_a_member_that_is_not_utf8_is_named_with_its_line(tmp_path):
    with tarfile.open(tmp_path / "c.tgz", "w:gz") as archive:
        member = tarfile.TarInfo("c/one")
        member.size = 4
        archive.addfile(member, io.BytesIO(b"a\nb\xff"))
    with refuses(
        f"{tmp_path}/c.tgz: c/one:2: not UTF-8 (byte 0xff at column 2); convert the file, for example with iconv"
    ):
        read_named(tmp_path, "c.tgz", "c", ["one"])
