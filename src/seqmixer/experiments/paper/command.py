"""`seqmixer paper`: train what is missing, measure it, and write it down."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.table import Table

from seqmixer.errors import ConfigError
from seqmixer.experiments.grid import run_grid
from seqmixer.experiments.paper import tables
from seqmixer.experiments.paper.beams import judge, standard_metrics
from seqmixer.experiments.paper.drawings import drawings
from seqmixer.experiments.paper.page import title, write_markdown, write_page
from seqmixer.experiments.paper.recipes import Card, Experiment, read_card
from seqmixer.experiments.paper.results import Results, read_results
from seqmixer.experiments.report import require_extra
from seqmixer.experiments.watching import watched


def run_paper(
    experiments: Sequence[Experiment], seeds: Sequence[int], workers: int, markdown: Path | None, command: str
) -> list[Results]:
    """Train, measure and report each experiment in turn. Called again after a stop, it goes on."""
    require_extra()  # before the hours, not after
    if markdown and markdown.exists() and not markdown.is_dir():
        raise ConfigError(f"--markdown {markdown} is a file; name a folder")
    cards = [read_card(experiment) for experiment in experiments]
    found = []
    for experiment, card in zip(experiments, cards, strict=True):
        found.append(run_one(experiment, card, seeds, workers))
        write_down(found[-1], markdown, [command])
    return found


def run_one(experiment: Experiment, card: Card, seeds: Sequence[int], workers: int) -> Results:
    names = standard_metrics(experiment.config.metrics[0], card.source_words is None)
    recipes = [experiment.recipe]
    with watched(recipes, len(seeds), experiment.folder, workers) as watcher:
        run_grid(
            recipes,
            seeds,
            experiment.folder,
            workers,
            watcher.report,
            judge=partial(judge, metrics=names),
            look=watcher.look,
        )
    return read_results(experiment, card)


def write_down(results: Results, markdown: Path | None, commands: Sequence[str]) -> None:
    """The page and its files into the experiment's folder; Markdown, JSON and figures also into another."""
    drawn, folder = drawings(results), results.experiment.folder
    write_page(results, drawn, commands, page_of(results))
    for place in (folder, *([markdown] if markdown else [])):
        write_markdown(results, drawn, commands, place)


def page_of(results: Results) -> Path:
    return results.experiment.folder / "report.html"


def shown(results: Results) -> Table:
    """Fig. 5, left, for the terminal."""
    source = tables.scores(results)
    table = Table(title=title(results), title_justify="left")
    for i, column in enumerate(source.columns):
        table.add_column(column, justify="right" if i else "left")
    for row in source.rows:
        table.add_row(*(f"[bold]{cell.strip('*')}" if cell.startswith("**") else cell for cell in row))
    return table
