"""Whole tables of runs, with their reports."""

from pathlib import Path
from typing import Annotated

import typer

from seqmixer.cli.options import Json, app, this_command


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where the runs and the report go.")] = Path("demo"),
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds; more than one gives deviations.")] = 1,
    workers: Annotated[int, typer.Option(min=1, help="Runs at a time, one core each.")] = 2,
    markdown: Annotated[
        Path | None, typer.Option(help="Also write the table to this file, and the figures beside it.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Train XENT, DAD, E2E and MIXER on the three built-in tasks: the paper's Fig. 5 in minutes, with a report.

    Stopped, it goes on where it was: finished runs are not run again.
    """
    from rich import print as show_table

    from seqmixer.experiments.demo import run_demo, table

    page = run_demo(out, list(range(1, seeds + 1)), workers, markdown, this_command())
    if as_json:
        print((out / "grid.json").read_text())
    else:
        show_table(table(out))
        print(f"Report: {page}")
