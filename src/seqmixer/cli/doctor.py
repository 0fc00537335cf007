"""Look at a config or a run before it costs hours."""

import json
from pathlib import Path
from typing import Annotated

import typer

from seqmixer.cli.options import Json, Out, Settings, Trust, app, put


@app.command()
def doctor(
    target: Annotated[Path, typer.Argument(help="A TOML file, or the folder of a run.")],
    settings: Settings = None,
    out: Out = Path("runs"),
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Check environment, data, settings and checkpoints; estimate memory and time; try out the reward.

    One line for each finding: ok, note, warning or problem, why, and what to do. Nothing is written. Where the model
    is to learn from the rewards of its samples, the pre-flight says whether that is likely to work. Exits with 2 if
    there is a problem.

    \b
    seqmixer doctor toy/translation
    seqmixer doctor runs/toy-translation
    """
    from seqmixer.doctor import examine

    diagnosis = examine(target, settings or [], out, trust)
    put(json.dumps(diagnosis.as_json()) if as_json else "\n".join(diagnosis.lines()))
    if diagnosis.count("problem"):
        raise typer.Exit(2)
