"""`seqmixer study`: train what is missing, and write it down as Markdown with a figure, and JSON."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table

from seqmixer import __version__
from seqmixer.bars import duration
from seqmixer.experiments.figures import small_multiples
from seqmixer.experiments.grid import Recipe
from seqmixer.experiments.methods import CONTROLS, LABELS, OLD, REFERENCE
from seqmixer.experiments.report.effects import side_effects
from seqmixer.experiments.report.page import (
    Chapter,
    Drawing,
    Page,
    ReportTable,
    Sentences,
    made,
    number,
    require_extra,
)
from seqmixer.experiments.report.sentences import of_grid
from seqmixer.experiments.study.results import Gain, Line, Study, read_study
from seqmixer.experiments.study.runs import WIDTHS, judge
from seqmixer.experiments.watching import run_watched

NOTE = (
    f"Test split, mean over seeds. Gain: over {OLD} with as many more epochs; in brackets 95 % of 1,000 resampled test "
    "sets, the same for all seeds. Bold: the interval lies above 0."
)
EFFECTS = "Of the test sentences, greedy search, mean over seeds"


def run_study(recipe: Recipe, seeds: Sequence[int], workers: int, markdown: Path | None, command: str) -> Study:
    """Train, measure and report. Called again after a stop, it resumes."""
    require_extra(markdown)
    folder = recipe.path.parent
    run_watched([recipe], seeds, folder, workers, judge)
    study = read_study(recipe)
    numbers = as_json(study, [command])
    page(study, [command]).publish(folder, markdown, f"study-{study.config.name}", numbers)
    return study


def title(study: Study) -> str:
    return f"Study: {study.config.name}"


def shown(study: Study) -> Table:
    """The score of greedy search, for the terminal."""
    return scores(study, WIDTHS[0]).terminal(title(study), NOTE)


def scores(study: Study, width: int) -> ReportTable:
    """The first metric with its gain, then all further ones."""
    first, *others = (f"{width} {metric.name}" for metric in study.metrics)
    search = "greedy" if width == 1 else f"beam {width}"
    columns = ["", f"{study.main}, {search}", "gain", *(metric.name for metric in study.metrics[1:])]
    rows = [
        [LABELS[line.method], spread(line, first), gained(line.gains.get(first)), *(spread(line, o) for o in others)]
        for line in study.lines
    ]
    return ReportTable(f"Scores, {search}", columns, rows, NOTE)


def costs(study: Study) -> ReportTable:
    rows = [
        [
            LABELS[line.method],
            duration(line.seconds),
            f"{line.sampled:,}",
            duration(line.reached.seconds) if line.reached else "–",
            f"{line.reached.sentences:,}" if line.reached else "–",
        ]
        for line in study.lines
    ]
    columns = ["", "training", "sampled sentences", "time to target", "sampled to target"]
    at_a_time = f", {study.grid.workers} runs at a time" if study.grid.workers > 1 else ""
    note = (
        f"Of one run, mean over seeds{at_a_time}. The target is a validation {study.main} of {study.target:.2f}: "
        "halfway from the model that all begin with to the best that any reaches."
    )
    return ReportTable("Time", columns, rows, note)


def spread(line: Line, key: str) -> str:
    deviation = line.deviation(key)
    return number(line.mean(key)) + ("" if deviation is None else f" ± {number(deviation)}")


def gained(gain: Gain | None) -> str:
    if gain is None:
        return ""
    text = f"{gain.difference:+.2f} [{gain.low:+.2f}, {gain.high:+.2f}]"
    return f"**{text}**" if gain.low > 0 else text


def curves(study: Study) -> str:
    """Validation score by time: a panel for each method, all further curves behind it."""
    found = {LABELS[line.method]: (line.curve.seconds, line.curve.scores) for line in study.lines}
    return small_multiples(found, "seconds", f"validation {study.main}", "curves")


def page(study: Study, commands: Sequence[str]) -> Page:
    effects = side_effects([(LABELS[line.method], line.effects) for line in study.lines], EFFECTS)
    drawn = Drawing(
        "curves", curves(study), "Validation score by time: a panel for each method, all further curves behind it."
    )
    methods = [line for line in study.lines if line.method not in (REFERENCE, *CONTROLS)]
    rival = best(methods or study.lines, study)
    return Page(
        title(study),
        f"{headline(study)}{controlled(study)}",
        [
            Chapter("Scores", [scores(study, width) for width in WIDTHS]),
            Chapter("Side effects", [effects]),
            Chapter("Time", [costs(study)]),
            Chapter("Learning", [drawn, trained(study)]),
            Chapter("What they write", [Sentences(of_grid(study.grid, REFERENCE, rival.method))]),
        ],
        commands=commands,
        facts=made(study.grid, signatures(study)),
    )


def trained(study: Study) -> str:
    data, algorithm = study.config.data, study.config.algorithm
    return (
        f"Every method trains from the best {OLD} model of its seed (of {algorithm.xent_epochs} epochs), for "
        f"{study.config.training.epochs} epochs of {algorithm.sentences} sampled sentences for each source of "
        f"{', '.join(data.train) or data.task}; one that samples fewer has more epochs. Reward: "
        f"{study.config.reward.name}{', EOS is a word' * study.config.reward.eos}."
    )


def headline(study: Study) -> str:
    """What was found, in a sentence."""
    key, found, seeds = f"{WIDTHS[0]} {study.main}", best(study.lines, study), len(study.grid.seeds)
    over = f"{found.gains[key].difference:+.2f} over {OLD}" if key in found.gains else "no method scores higher"
    scored = f"{LABELS[found.method]}: {study.main} {found.mean(key):.2f}, {over}"
    return f"The best of {len(study.lines)} is {scored} ({seeds} seed{'s' * (seeds > 1)})."


def best(lines: Sequence[Line], study: Study) -> Line:
    return max(lines, key=lambda line: line.mean(f"{WIDTHS[0]} {study.main}"))


def controlled(study: Study) -> str:
    """What the controls gain beside the best method; nothing without controls."""
    key = f"{WIDTHS[0]} {study.main}"
    gains = {line.method: line.gains[key].difference for line in study.lines if key in line.gains}
    most = max((gain for method, gain in gains.items() if method in CONTROLS), default=None)
    best = max((gain for method, gain in gains.items() if method not in CONTROLS), default=0.0)
    if most is None:
        return ""
    share = f", {100 * most / best:.0f} % of the highest gain" if min(most, best) > 0 else ""
    return f" With rewards that say nothing (control), the gain is {most:+.2f} at most{share}."


def signatures(study: Study) -> list[tuple[str, str]]:
    return [(study.main, each) for each in sorted({result.signature for result in study.grid.results})]


def as_json(study: Study, commands: Sequence[str]) -> dict[str, Any]:
    """Every number of the page."""
    return {
        "name": study.config.name,
        "version": __version__,
        "machine": study.grid.machine,
        "commands": list(commands),
        "seeds": list(study.grid.seeds),
        "target": study.target,
        "settings": study.config.model_dump(mode="json", exclude={"data": {"folder"}}),
        "methods": [asdict(line) for line in study.lines],
        "runs": list(study.runs.values()),
    }
