"""What the commands share: the application, their arguments, and how a result is shown."""

import json
import math
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from seqmixer import __version__
from seqmixer.errors import ConfigError, printable
from seqmixer.parallel import launch

WIDE = 160  # columns of a table that is redirected

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Train text generators on the score they are judged by, with the algorithms of Ranzato et al. (2016).\n\n"
    "A run is a TOML file, or the name of one that comes with seqmixer. Try: seqmixer train toy/translation",
)


def seed_option(help: str) -> Any:
    """Seeds of commands have the range of those in a config."""
    return typer.Option(min=0, max=2**63 - 1, help=help)


def finite(value: float | None) -> float | None:
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number.")
    return value


ConfigFile = Annotated[Path, typer.Argument(help="A TOML file, or one of `seqmixer configs`; see `seqmixer settings`.")]
RunFolder = Annotated[Path, typer.Argument(help="The folder of a run, such as runs/toy-translation.")]
Settings = Annotated[list[str] | None, typer.Option("--set", help="Override a setting: --set model.hidden=512.")]
Beam = Annotated[int, typer.Option(min=1, max=1000, help="Hypotheses of the beam search; 1 is greedy search.")]
LengthPenalty = Annotated[
    float,
    typer.Option(min=-5, max=5, callback=finite, help="Rank by log p / length^PENALTY; 0 ranks by probability."),
]
Mbr = Annotated[
    int,
    typer.Option(
        min=0, max=1000, help="Minimum Bayes risk: of so many samples, the one that agrees most with the rest."
    ),
]
Utility = Annotated[
    str | None, typer.Option("--metric", help="With --mbr: what agreement is measured by. Default: the run's metric.")
]
Unk = Annotated[
    bool | None, typer.Option("--unk/--no-unk", help="Whether <unk> may be written. Default: the run's evaluation.unk.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Trust = Annotated[
    bool,
    typer.Option("--trust", help="Import the Python code that a run folder's config.toml names."),
]
MetricNames = Annotated[
    str | None,
    typer.Option(
        "--metrics", help="Metrics, separated by commas: built-ins, module:function, weighted sums. Default: the run's."
    ),
]
Out = Annotated[Path, typer.Option(help="Where run folders go.")]


def say_version(asked: bool) -> None:
    if asked:
        put(f"seqmixer {__version__}")
        raise typer.Exit


@app.callback()
def command(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=say_version, is_eager=True, help="Say which it is.")
    ] = False,
) -> None:
    if launch.processes() > 1 and context.invoked_subcommand != "train":
        raise ConfigError(
            f"`seqmixer {context.invoked_subcommand}` is for one process; only train works under torchrun"
        )


def search_of(beam: int, length_penalty: float, mbr: int, metric: str | None, unk: bool | None) -> dict[str, Any]:
    """The search of the options; the default of each is the run's."""
    if length_penalty and beam == 1:
        raise ConfigError(f"--length-penalty {length_penalty:g} needs --beam: greedy search has one sentence to rank")
    if metric is not None and not mbr:
        raise ConfigError(f"--metric {metric} needs --mbr, such as --mbr 32: it is what samples are compared by")
    search = {"beam": beam, "length_penalty": length_penalty, "mbr": mbr, "metric": metric}
    return search if unk is None else {**search, "unk": unk}


def split_names(names: str | None) -> list[str]:
    """The names of an option, separated by commas."""
    return [name.strip() for name in (names or "").split(",") if name.strip()]


def this_command() -> str:
    return f"{' '.join(launch.launcher())} {shlex.join(sys.argv[1:])}"


def put(text: str, end: str = "\n") -> None:
    """Print a result. A terminal gets no control characters of its data; a file or another program gets all of it."""
    print(printable(text) if sys.stdout.isatty() else text, end=end, flush=True)


def show_table(table: object) -> None:
    """Print a table, or several. Where the output is redirected, they are as wide as they need to be."""
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else WIDE).print(table)


def show(values: dict[str, object], text: str, as_json: bool) -> None:
    put(json.dumps(values) if as_json else text)
