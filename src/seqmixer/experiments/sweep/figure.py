"""The picture of a search: how much each setting mattered, and the score by the values of those that mattered most."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from seqmixer.experiments.figures import standalone, style, svg
from seqmixer.experiments.methods import LIGHT, PROPOSED
from seqmixer.experiments.sweep.trials import Outcome

if TYPE_CHECKING:  # an extra: loaded by the function that draws
    from matplotlib.axes import Axes

PANELS = 3  # settings whose values are drawn


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
