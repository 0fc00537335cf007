"""The configs that come with seqmixer, known by name from anywhere: toy/translation, paper/multi30k, ..."""

from pathlib import Path

FOLDER = Path(__file__).parent


def names() -> dict[str, Path]:
    """Where each is, by name."""
    return {path.relative_to(FOLDER).with_suffix("").as_posix(): path for path in sorted(FOLDER.glob("*/*.toml"))}


def found(path: Path | str) -> Path:
    """The file of that name, or else the bundled config of that name.

    >>> found("toy/translation").relative_to(FOLDER).as_posix()
    'toy/translation.toml'
    """
    path = Path(path)
    name = path.with_suffix("") if path.suffix == ".toml" else path
    return path if path.exists() else names().get(name.as_posix().removeprefix("configs/"), path)


def about(path: Path) -> str:
    """What a config is for: the comment at its beginning."""
    first = path.read_text(encoding="utf-8").split("\n", 1)[0]
    return first.removeprefix("#").strip()
