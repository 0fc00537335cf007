"""`seqmixer paper`: train what is missing, measure it, and write it down as a page, Markdown with figures, and JSON."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from rich.table import Table

from seqmixer import __version__
from seqmixer.experiments.methods import BASE, EVERY, LABELS, NEW, OLD, PROPOSED, REFERENCE, RL
from seqmixer.experiments.paper import tables
from seqmixer.experiments.paper.beams import ENDS, judge, standard_metrics
from seqmixer.experiments.paper.drawings import drawings
from seqmixer.experiments.paper.recipes import Experiment, read_card
from seqmixer.experiments.paper.results import Results, read_results
from seqmixer.experiments.report.page import Chapter, Drawing, Page, Part, Sentences, made, number, require_extra
from seqmixer.experiments.report.sentences import of_grid
from seqmixer.experiments.summary import METRIC_LABELS
from seqmixer.experiments.watching import run_watched

SCRATCH = ", ".join(LABELS[method.name] for method in EVERY if method.scratch)
CROSS = ", ".join(LABELS[method.name] for method in EVERY if method.only)
CAPTIONS = {
    "gains": f"Score relative to {OLD}, which is the line at 1 (the paper's Fig. 5, right); a dot is one seed.",
    "beams": f"Test score by width of the beam (Fig. 6). The dashed lines are {NEW}, greedy and with the widest beam.",
    "cross": f"Score relative to {OLD} by two metrics (Fig. 8): {NEW} was trained on one, {CROSS} on the other.",
    "curves": f"Validation score and perplexity; {NEW}'s rewards and how it writes. Grey: the base, trained with "
    f"{OLD}, that every method starts from; dashed: {SCRATCH} from random weights, if it was run. The upright lines "
    f"are {NEW}'s stages: the first s words are trained with {OLD}, the rest with {RL}.",
}


def run_paper(
    experiments: Sequence[Experiment], seeds: Sequence[int], workers: int, markdown: Path | None, command: str
) -> list[Results]:
    """Train, measure and report each experiment in turn. Called again after a stop, it resumes."""
    require_extra(markdown)
    cards = [read_card(experiment) for experiment in experiments]
    found = []
    for experiment, card in zip(experiments, cards, strict=True):
        names = standard_metrics(experiment.config.metrics[0], card.source_words is None)
        run_watched([experiment.recipe], seeds, experiment.folder, workers, partial(judge, metrics=names))
        found.append(read_results(experiment, card))
        write_down(found[-1], markdown, [command])
    return found


def write_down(results: Results, markdown: Path | None, commands: Sequence[str]) -> None:
    experiment = results.experiment
    page(results, commands).publish(experiment.folder, markdown, experiment.stem, as_json(results, commands))


def shown(results: Results) -> Table:
    """Fig. 5, left, for the terminal."""
    return tables.scores(results).terminal(title(results))


def title(results: Results) -> str:
    return f"Sequence-level training: {results.experiment.task}, {results.experiment.kind} recipe"


def headline(results: Results) -> str:
    """What was found, in a sentence."""
    ours, theirs = results.main.cells[PROPOSED].ratio, results.published.scores
    paper = f"in the paper {theirs[PROPOSED] / theirs[REFERENCE]:.2f} times"
    if ours is None:
        return f"{OLD} scores 0, so that {NEW}'s gain has no ratio; {paper}."
    return f"{NEW} scores {ours:.2f} times what {OLD} scores; {paper}."


def details(results: Results) -> str:
    """By how much, how far to trust it, and against beam search."""
    cells, wide = results.main.cells, max(ENDS)
    greedy, searched = (test for test in results.tests if test.method == PROPOSED)
    largest = f"{max(greedy.p_values):.3f}"
    chance = (
        f"p ≤ {largest} with every seed" if greedy.better else f"not significantly with every seed (p up to {largest})"
    )
    beam = results.cell(REFERENCE, "paper", results.metric, wide).mean
    order = "above" if cells[PROPOSED].mean > beam else "below"
    sure = "with every seed" if searched.better else "not significantly with every seed"
    return (
        f"{METRIC_LABELS[results.metric]} {number(cells[PROPOSED].mean)} against {number(cells[REFERENCE].mean)}, "
        f"greedy search, {tables.seeds(results)}; {chance}. {NEW}'s greedy search is {order} {OLD}'s beam of {wide} "
        f"({number(beam)}){', ' + sure if order == 'above' else ''}."
    )


def page(results: Results, commands: Sequence[str]) -> Page:
    drawn = {name: Drawing(name, drawing, CAPTIONS[name]) for name, drawing in drawings(results).items()}
    crossed: list[Part] = [tables.cross(results), drawn["cross"]] if results.cross else []
    chapters = [
        Chapter("Test scores", [tables.scores(results), drawn["gains"], drawn["beams"]]),
        Chapter("Beam search", [tables.beams(results), tables.decoding(results)]),
        Chapter("Both protocols", [tables.measures(results), tables.significance(results)]),
        Chapter("Trained on one metric, scored by both", crossed),
        Chapter("Learning", [drawn["curves"], tables.schedule(results)]),
        Chapter("What they write", [Sentences(of_grid(results.grid, REFERENCE, PROPOSED))]),
        Chapter("Data and time", [tables.data(results), tables.times(results), tables.every_seed(results)]),
    ]
    return Page(
        title(results),
        headline(results),
        [chapter for chapter in chapters if chapter.parts],
        details(results),
        commands,
        made(results.grid, tables.signatures(results)),
    )


def as_json(results: Results, commands: Sequence[str]) -> dict[str, Any]:
    """Every number of the page."""
    return {
        "task": results.experiment.task,
        "recipe": results.experiment.kind,
        "version": __version__,
        "machine": results.grid.machine,
        "commands": list(commands),
        "seeds": list(results.grid.seeds),
        "methods": list(results.methods),
        "metric": results.metric,
        "data": asdict(results.card),
        "settings": results.experiment.config.model_dump(mode="json", exclude={"data": {"folder"}}),
        "scores": {method: asdict(cell) for method, cell in results.main.cells.items()},
        "beams": {method: [asdict(cell) for cell in results.beam_curve(method)] for method in results.compared},
        "tests": [asdict(test) for test in results.tests],
        "cross": {row.task: {name: asdict(cell) for name, cell in row.cells.items()} for row in results.cross},
        "published": asdict(results.published),
        "runs": [results.runs[method, seed] for method in (BASE, *results.methods) for seed in results.grid.seeds],
    }
