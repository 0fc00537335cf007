"""Look for better settings."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqmixer.cli.options import ConfigFile, Json, Settings, app, put, seed_option, show_table, this_command

if TYPE_CHECKING:
    from seqmixer.experiments.sweep.search import Sweep
    from seqmixer.experiments.sweep.trials import Outcome, Report


@app.command()
def sweep(
    config: ConfigFile,
    search: Annotated[Path, typer.Option(help="A TOML file: settings with their choices or ranges.")],
    settings: Settings = None,
    trials: Annotated[int | None, typer.Option(min=1, help="In all. Default: 20; a grid has as many as cells.")] = None,
    method: Annotated[str, typer.Option(help="tpe: near what did well. random. grid: every combination once.")] = "tpe",
    prune_after: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="After this epoch and later ones, stop a trial whose best validation score is below the median of the "
            "complete trials (five or more) at that epoch. Default: none is stopped.",
        ),
    ] = None,
    seed: Annotated[int, seed_option("Of what is drawn; runs keep the seed of the config.")] = 1,
    workers: Annotated[int, typer.Option(min=1, help="Trials at a time.")] = 1,
    out: Annotated[Path | None, typer.Option(help="The search's folder. Default: runs/sweeps/NAME.")] = None,
    as_json: Json = False,
) -> None:
    """Search for the settings with the highest validation score. Each trial is an ordinary run below OUT.

    The file of --search names any settings of the config, as choices or as ranges:

    \b
    "training.optimizer" = ["sgd", "adam"]
    "training.lr" = { low = 1e-4, high = 1e-2, log = true }
    "model.hidden" = { low = 32, high = 128, step = 32 }

    Stopped with Ctrl-C or killed, the same command resumes the search, also within a trial. Given at the same time in
    several shells, or on machines that share OUT, it works on one search. More --trials than before make it longer.

    Leaves best.toml (for `seqmixer train`), sweep.md, sweep.json and sweep.svg in OUT.

    \b
    seqmixer sweep toy/translation --search rates.toml --trials 30 --prune-after 6
    seqmixer sweep toy/translation --search rates.toml --method grid --workers 2 --out runs/sweeps/grid
    """
    from seqmixer.config import Config
    from seqmixer.experiments.sweep.record import table, write_record
    from seqmixer.experiments.sweep.search import plan, require_extra
    from seqmixer.experiments.sweep.space import read_space
    from seqmixer.experiments.sweep.trials import run_search

    require_extra()
    base = Config.load(config, settings or [])
    folder = out or Path("runs/sweeps") / base.name
    space = read_space(search, base)
    planned = plan(folder, base, space, method=method, trials=trials, seed=seed, prune_after=prune_after)
    with watched(planned, workers) as report:
        run_search(planned, workers, report)
    record = write_record(planned, this_command())
    if as_json:
        put((folder / "sweep.json").read_text(encoding="utf-8"))
    else:
        show_table(table(record))
        put(f"Best: seqmixer train {folder / 'best.toml'}")
        put(f"Record: {folder / 'sweep.md'}")


@contextmanager
def watched(search: "Sweep", workers: int) -> Iterator["Report"]:
    """A bar on standard error that counts trials and says where each under way is, and a line for each that is over."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

    from seqmixer.bars import duration, progress_bar, write_line
    from seqmixer.experiments.sweep.trials import over
    from seqmixer.experiments.watching import Places

    seconds = list[float]()
    names = TextColumn("{task.description}")
    with progress_bar(names, BarColumn(20), MofNCompleteColumn(), Places(search.folder)) as bar:
        task = bar.add_task("trials", total=search.trials)

        def report(outcome: "Outcome") -> None:
            done = over(search)
            seconds.append(outcome.seconds)
            left = sum(seconds) / len(seconds) * (search.trials - done) / workers
            bar.update(task, completed=done, description=f"trials, about {duration(left)} left")
            write_line(bar, line(outcome))

        yield report


def line(outcome: "Outcome") -> str:
    """A line for a finished trial."""
    from seqmixer.experiments.sweep.record import brief

    values = "  ".join(f"{name}={brief(value)}" for name, value in outcome.values.items())
    score = "      " if outcome.score is None else f"{outcome.score:6.2f}"
    ending = {"pruned": f"  pruned after epoch {outcome.epochs}", "failed": f"  failed: {outcome.reason}"}
    return f"trial {outcome.number:3}  {score}  {values}  {outcome.seconds:.1f} s{ending.get(outcome.state, '')}"
