"""The results of a search: its best trials, what mattered, and the config of the best.

sweep.json has all of it, sweep.md what a person reads, sweep.svg what mattered, and best.toml is for `seqmixer train`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import tomli_w
from rich.markup import escape
from rich.table import Table

from seqmixer import __version__, files
from seqmixer.bars import duration
from seqmixer.config import Config
from seqmixer.errors import RunError
from seqmixer.evaluation import read_scores
from seqmixer.experiments.figures import standalone, style, svg
from seqmixer.experiments.methods import LIGHT, PROPOSED
from seqmixer.experiments.report.page import ReportTable, number
from seqmixer.experiments.sweep.search import Sweep, load_study, locked, trial_name
from seqmixer.experiments.sweep.space import Choices, Range, Value, changed
from seqmixer.experiments.sweep.trials import Outcome, outcomes

if TYPE_CHECKING:  # an extra: loaded by the function that draws
    from matplotlib.axes import Axes

SHOWN = 10  # trials in the table
PANELS = 3  # settings whose values are drawn
IMPORTANCE = (
    "Importance (PED-ANOVA) is how far the values of the best trials are from those of all complete ones: it "
    "says what it took to be among the best in this space, not what a setting does elsewhere."
)


@dataclass(frozen=True)
class Record:
    """A search as it stands."""

    search: Sweep
    command: str
    trials: Sequence[Outcome]
    importance: dict[str, float]  # by setting, largest first, summing to 1; empty where the trials cannot tell

    @property
    def ranked(self) -> list[Outcome]:
        """Complete trials, best first; of equals, the first."""
        complete = [trial for trial in self.trials if trial.score is not None and trial.state == "complete"]
        return sorted(complete, key=lambda trial: -(trial.score or 0.0))

    def count(self, state: str) -> int:
        return sum(trial.state == state for trial in self.trials)


def write_record(search: Sweep, command: str) -> Record:
    """Write down a search as it stands, finished or not; refuse one without a finished trial."""
    with locked(search):
        record = Record(search, command, outcomes(search), importance(search))
        if not record.ranked:
            reasons = [trial.reason for trial in record.trials if trial.reason]
            why = f"; the first that failed: {reasons[0]}" if reasons else ""
            raise RunError(f"{search.folder}: none of {len(record.trials)} trials was trained to its end{why}")
        files.write(search.folder / "best.toml", best_toml(record))
        files.write(search.folder / "sweep.svg", what_mattered(record.ranked, record.importance))
        files.write(search.folder / "sweep.json", json.dumps(as_json(record), indent=1))
        files.write(search.folder / "sweep.md", "\n".join(markdown(record)) + "\n")
    return record


def importance(search: Sweep) -> dict[str, float]:
    """PED-ANOVA's importance of each setting to be among the best tenth, or the best five where that is more.

    Fewer than four complete trials, or a worst that is as good as the best ones, cannot tell.
    """
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
    from optuna.trial import TrialState

    study = load_study(search)
    scores = sorted((trial.value or 0.0 for trial in study.get_trials(False, (TrialState.COMPLETE,))), reverse=True)
    count = max(len(scores) // 10, min(5, len(scores) // 2))
    if len(scores) < 4 or scores[count - 1] == scores[-1]:
        return {}
    evaluator = PedAnovaImportanceEvaluator(target_quantile=(count - 0.5) / len(scores))
    return dict(get_param_importances(study, evaluator=evaluator))


def best_config(record: Record) -> Config:
    values = changed(record.search.config, record.ranked[0].values)
    return Config.parse(values | {"name": f"{record.search.config.name}-best"})


def best_toml(record: Record) -> str:
    """The config of the best trial, ready for `seqmixer train`."""
    best = record.ranked[0]
    found = (
        f"# {trial_name(best.number)} of a search with {len(record.trials)} trials: {scored(record, best)} on valid.\n"
    )
    return f"{found}# {record.command}\n{best_config(record).toml()}"


def scored(record: Record, trial: Outcome) -> str:
    return f"{record.search.config.metrics[0]} {number(trial.score)}"


def as_json(record: Record) -> dict[str, object]:
    search = record.search
    return {
        "command": record.command,
        "method": search.method,
        "seed": search.seed,
        "prune_after": search.prune_after,
        "metric": search.config.metrics[0],
        "space": {name: written(found) for name, found in search.space.items()},
        "best": {"trial": record.ranked[0].number, "score": record.ranked[0].score, "values": record.ranked[0].values},
        "importance": record.importance,
        "trials": [asdict(trial) for trial in record.trials],
        "version": __version__,
    }


def written(found: Choices | Range) -> object:
    """A domain, written as in its file."""
    if isinstance(found, Choices):
        return list(found.values)
    return {name: value for name, value in asdict(found).items() if value is not None and value is not False}


def markdown(record: Record) -> Iterator[str]:
    search, best = record.search, record.ranked[0]
    test = read_scores(search.folder / trial_name(best.number))
    yield from (f"# A search for {search.config.name}", "")
    yield f"{summary(record)} The best, {trial_name(best.number)}, has {scored(record, best)} on the validation split,"
    yield f"which chose it, and {test.test:.2f} on the test split (`{test.signature}`)."
    yield from ("", "## Best trials", "", *trial_table(record).markdown(), "", "## What mattered", "")
    yield from (f"- `{name}`: {share:.2f}" for name, share in record.importance.items())
    yield from (["", IMPORTANCE] if record.importance else ["The trials are too few, or too alike, to tell."])
    yield from ("", "![Importance and scores](sweep.svg)", "", "## Space", "", "```toml")
    yield tomli_w.dumps({name: written(found) for name, found in search.space.items()}).rstrip()
    yield from ("```", "", "## How", "", f"- {how(search)}")
    machines = "; ".join(dict.fromkeys(trial.machine for trial in record.trials if trial.machine))
    spent = duration(sum(trial.seconds for trial in record.trials))
    yield f"- {machines}; seqmixer {__version__}; {spent} of training in all"
    yield from ("", "```", record.command, "```")


def trial_table(record: Record) -> ReportTable:
    names = list(record.search.space)
    lines = [
        [str(trial.number), *(brief(trial.values[name]) for name in names), number(trial.score), str(trial.epochs)]
        for trial in record.ranked[:SHOWN]
    ]
    return ReportTable("Best trials", ["trial", *(f"`{name}`" for name in names), "valid", "epochs"], lines)


def summary(record: Record) -> str:
    """How many trials are complete, pruned, failed and running."""
    parts = [f"{record.count(state)} {state}" for state in ("complete", "pruned", "failed", "running")]
    return f"{len(record.trials)} trials: {', '.join(part for part in parts if not part.startswith('0 '))}."


def how(search: Sweep) -> str:
    drawn = {"tpe": "TPE", "random": "values drawn at random", "grid": "every combination"}[search.method]
    pruned = (
        ""
        if search.prune_after is None
        else (f"; from epoch {search.prune_after} on, a trial below the median of the complete ones was stopped")
    )
    return f"{drawn}, seed {search.seed}{pruned}"


def brief(value: Value) -> str:
    """A value with as many digits as one compares.

    >>> brief(0.00123456), brief(256), brief("adam"), brief(True)
    ('0.001235', '256', 'adam', 'true')
    """
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def table(record: Record) -> Table:
    """The best trials, for the terminal."""
    names = list(record.search.space)
    shown = Table(title=summary(record), title_justify="left", caption_justify="left", box=None, pad_edge=False)
    shares = ", ".join(f"{name} {share:.2f}" for name, share in record.importance.items())
    shown.caption = f"importance: {shares or 'too few trials, or too alike, to tell'}"
    for name in ("trial", *names, record.search.config.metrics[0], "epochs", "seconds"):
        shown.add_column(escape(name), justify="right", overflow="fold")
    for trial in record.ranked[:SHOWN]:
        cells = [escape(brief(trial.values[name])) for name in names]
        shown.add_row(str(trial.number), *cells, number(trial.score), str(trial.epochs), f"{trial.seconds:.1f}")
    return shown


def what_mattered(complete: Sequence[Outcome], importance: Mapping[str, float]) -> str:
    """Left the importances, right a dot for each complete trial; the best is filled."""
    from matplotlib.figure import Figure

    names = list(importance or complete[0].values)
    with style():
        figure = Figure(figsize=(2.6 * (1 + len(names[:PANELS])), 2.8), layout="constrained")
        bars, *panels = figure.subplots(1, 1 + len(names[:PANELS]), squeeze=False)[0]
        draw_importance(bars, names, importance)
        for axes, name in zip(panels, names, strict=False):
            draw_scores(axes, name, complete)
        panels[0].set_ylabel("validation score")
        return standalone(svg(figure, "sweep"))


def draw_importance(axes: "Axes", names: Sequence[str], importance: Mapping[str, float]) -> None:
    places = range(len(names))
    axes.barh(places, [importance.get(name, 0.0) for name in names], color=LIGHT[PROPOSED])
    axes.set_yticks(places, names)
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.set_xlabel("importance" if importance else "importance: unknown")
    axes.tick_params(axis="y", length=0)


def draw_scores(axes: "Axes", name: str, complete: Sequence[Outcome]) -> None:
    """Numbers along a scale, logarithmic where they span more than a factor of 20; the rest side by side."""
    values = [trial.values[name] for trial in complete]
    scores = [trial.score or 0.0 for trial in complete]
    numbers = [float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) < len(values):
        labels = sorted({str(value) for value in values})
        numbers = [float(labels.index(str(value))) for value in values]
        axes.set_xticks(range(len(labels)), labels)
    elif min(numbers) > 0 and max(numbers) > 20 * min(numbers):
        axes.set_xscale("log")
    axes.plot(numbers, scores, "o", markersize=4, color=LIGHT["soft"], fillstyle="none")
    axes.plot(numbers[:1], scores[:1], "o", markersize=6, color=LIGHT[PROPOSED])
    axes.set_xlabel(name)
    axes.grid(axis="y")
