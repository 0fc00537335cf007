"""`seqmixer init`: a config for the files that a person has."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from seqmixer.cli.options import Json, app, show, split_names
from seqmixer.errors import ConfigError

EXAMPLES = "train.de train.en, or talks.tsv, or captions.json features.npz"


@app.command()
def init(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Source and target; or one .tsv .csv .jsonl; or captions and features.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The config to write.")] = Path("mine.toml"),
    columns: Annotated[str | None, typer.Option(help="Of a table: the source, then the target, such as de,en.")] = None,
    languages: Annotated[
        str | None, typer.Option(help="Of source and target, such as de,en. Default: what the files are called.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Write a config for your files: `seqmixer train` then takes it as it is, and you can change it.

    Looks at the text, measures this machine, and chooses how text becomes words, T, the size of the model and a
    schedule. Text may be raw or tokenised, plain or .gz. Without files for validation and test beside train.* (valid.*,
    val.* or dev.*, and test.*), examples for them are drawn from the training text. Each choice is explained in the
    file. Nothing is written over.

    \b
    seqmixer init train.de train.en
    seqmixer init talks.tsv --columns german,english --languages de,en --out talks.toml
    """
    asked = not yes and sys.stdin.isatty()

    def ask(question: str) -> str:
        return str(typer.prompt(question, default="", show_default=False, err=True)) if asked else ""

    require_new(out)
    paths = files or [Path(name) for name in ask(f"Your files ({EXAMPLES})").split()]
    if not paths:
        raise ConfigError(f"name your files: seqmixer init {EXAMPLES}")

    from seqmixer.files import write
    from seqmixer.init import find, plan

    made = plan(find(paths, split_names(columns), ask), split_names(languages), out, ask)
    require_new(out)
    write(out, made.toml)
    command = f"seqmixer train {out}"
    lines = [*made.found, f"{out} is written. Next: {command}"]
    show({"config": str(out), "found": made.found, "next": command}, os.linesep.join(lines), as_json)


def require_new(out: Path) -> None:
    if out.exists():
        raise ConfigError(f"{out} is there already; choose another --out, or remove it")
