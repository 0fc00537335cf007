"""The pictures of a report, as SVG in the colours of its page: relative gains (Fig. 5) and learning curves."""

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import groupby, pairwise
from statistics import mean
from typing import TYPE_CHECKING, Any, Literal

from seqmixer.experiments.methods import BASE, DARK, LABELS, LIGHT, PROPOSED, REFERENCE
from seqmixer.experiments.summary import METRIC_LABELS, Grid, Row
from seqmixer.training.callbacks import Event

if TYPE_CHECKING:  # an extra: loaded by the functions that draw
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLE: dict[Any, Any] = {  # matplotlib's own type for it spells out every name
    "svg.fonttype": "none",  # text stays text, in the page's own fonts
    "svg.hashsalt": "seqmixer",  # the same numbers give the same file
    "font.size": 10,
    "text.color": LIGHT["ink"],
    "axes.edgecolor": LIGHT["rule"],
    "axes.labelcolor": LIGHT["soft"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": LIGHT["soft"],
    "ytick.color": LIGHT["soft"],
    "grid.color": LIGHT["rule"],
    "grid.linewidth": 0.6,
}
Points = Sequence[tuple[float, float]]  # epoch, value


def style() -> AbstractContextManager[None]:
    import matplotlib

    return matplotlib.rc_context(STYLE)


def relative_gains(table: Sequence[Row], name: str) -> str:
    """Fig. 5, right: score / XENT's score for each task and method; a dot is a seed, the line at 1 is XENT."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    methods = [method for method in table[0].cells if method != REFERENCE]
    width = 0.8 / len(methods)
    with style():
        figure = Figure(figsize=(max(5.2, 1.7 * len(table)), 3.3), layout="constrained")
        axes = figure.subplots()
        for i, row in enumerate(table):
            for j, method in enumerate(methods):
                draw_gain(axes, i + (j - (len(methods) - 1) / 2) * width, width, row, method)
        axes.axhline(1, color=LIGHT["ink"], linewidth=1)
        axes.set_xticks(range(len(table)), [row.task for row in table])
        axes.tick_params(length=0)
        axes.set_ylabel(f"score / {LABELS[REFERENCE]}'s score")
        axes.grid(axis="y")
        axes.set_axisbelow(True)
        axes.use_sticky_edges = False  # room for the numbers below the line, also where no bar goes down
        axes.margins(y=0.14)
        axes.spines[["left", "bottom"]].set_visible(False)
        legend = [Patch(color=LIGHT[method], label=LABELS[method]) for method in methods]
        figure.legend(handles=legend, loc="outside upper left", ncols=len(methods), frameon=False, handlelength=0.9)
        return svg(figure, name)


def draw_gain(axes: "Axes", x: float, width: float, row: Row, method: str) -> None:
    cell = row.cells.get(method)
    if cell is None or cell.ratio is None:
        return
    axes.bar(x, cell.ratio - 1, width * 0.92, bottom=1, color=LIGHT[method])
    if len(cell.ratios) > 1:
        axes.plot([x + 0.3 * width] * len(cell.ratios), cell.ratios, "o", markersize=2.5, color=LIGHT["ink"], alpha=0.6)
    across = "top" if cell.ratio >= 1 else "bottom"  # on the free side of the line at 1
    shift = (0, -3 if cell.ratio >= 1 else 3)
    axes.annotate(f"{cell.ratio:.2f}", (x, 1), shift, textcoords="offset points", ha="center", va=across, fontsize=9)


def learning_curves(grid: Grid, task: str, name: str) -> str:
    """Validation score by epoch, the base and then each method; below it MIXER's rewards, and how it writes."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    metric = grid.metrics[task]
    offset = max(map(len, grid.logs(task, BASE)))
    with style():
        figure = Figure(figsize=(4.2, 5.4), layout="constrained")
        upper, middle, lower = figure.subplots(3, sharex=True, height_ratios=[3, 1, 1])
        draw(upper, valid_curves(grid, task, BASE, metric), BASE)
        curves = {method: valid_curves(grid, task, method, metric, offset) for method in grid.methods}
        ends = {method: draw(upper, curves[method], method) for method in grid.methods}
        frame_scores(upper, grid, task, ends)
        draw_samples(middle, lower, grid.logs(task, PROPOSED), offset)
        mark_stages([upper, middle, lower], list(stages(grid.logs(task, PROPOSED)[0])), offset)
        lower.set_xlabel("epoch")
        lower.set_xlim(1, max(x for x, _ in ends.values()))
        lower.xaxis.set_major_locator(MaxNLocator(7, integer=True))
        return svg(figure, name)


def small_multiples(curves: Mapping[str, tuple[Sequence[float], Sequence[float]]], x: str, y: str, name: str) -> str:
    """A panel for each curve, by its label: the curve in front of all others."""
    from matplotlib.figure import Figure

    across = min(4, len(curves))
    down = -(-len(curves) // across)
    with style():
        figure = Figure(figsize=(2.2 * across, 0.4 + 1.5 * down), layout="constrained")
        panels = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False).flat
        for axes, (label, front) in zip(panels, curves.items(), strict=False):
            for other in curves.values():
                axes.plot(*other, color=LIGHT["rule"], linewidth=1)
            axes.plot(*front, color=LIGHT[PROPOSED], linewidth=2)
            axes.set_title(label, fontsize=9, loc="left")
        for axes in list(panels)[len(curves) :]:
            axes.set_axis_off()
        figure.supxlabel(x, fontsize=9)
        figure.supylabel(y, fontsize=9)
        return svg(figure, name)


def valid_curves(grid: Grid, task: str, method: str, key: str, offset: int = 0) -> list[Points]:
    """By seed: a score of the validation split by epoch, with an offset from the best model of the base."""
    found: list[Points] = []
    for base, log in zip(grid.logs(task, BASE), grid.logs(task, method), strict=True):
        start = [(offset, event["valid"][key]) for event in base if event["best"]][-1:] if offset else []
        found.append([*start, *((offset + event["epoch"], event["valid"][key]) for event in log)])
    return found


def draw(
    axes: "Axes", curves: Sequence[Points], colour: str, label: str | None = None, dashed: bool = False
) -> tuple[float, float]:
    """The mean over seeds, for XENT and MIXER with a band from the lowest to the highest; returns where it ends."""
    by_epoch: dict[float, list[float]] = {}
    for epoch, value in (point for curve in curves for point in curve):
        by_epoch.setdefault(epoch, []).append(value)
    x, values = list(by_epoch), list(by_epoch.values())
    means = [mean(v) for v in values]
    weight = 2.2 if colour == PROPOSED else 1.5
    axes.plot(x, means, "--" if dashed else "-", color=LIGHT[colour], linewidth=weight, label=label)
    if len(curves) > 1 and colour in (BASE, REFERENCE, PROPOSED):  # more bands than these hide the lines
        axes.fill_between(x, [min(v) for v in values], [max(v) for v in values], color=LIGHT[colour], alpha=0.14, lw=0)
    return x[-1], means[-1]


def frame_scores(axes: "Axes", grid: Grid, task: str, ends: Mapping[str, tuple[float, float]]) -> None:
    """Name the lines where they end, and leave the first epochs of the base below the frame."""
    low = 0.6 * min([mean(r.valid for r in grid.of(task, BASE)), *(y for _, y in ends.values())])
    best = (grid.best or {}).get(task)
    high = max(axes.get_ylim()[1], best or 0.0)
    if best is not None:
        axes.axhline(best, color=LIGHT["ink"], linewidth=0.9, linestyle=(0, (4, 3)))
        axes.text(0.02, best, "best grammatical", va="bottom", fontsize=9, transform=axes.get_yaxis_transform())
    axes.set_ylim(low, high + 0.12 * (high - low))  # room for the numbers of the stages
    name_ends(axes, ends)
    axes.set_ylabel(f"validation {METRIC_LABELS[grid.metrics[task]]}")
    axes.grid(axis="y")


def name_ends(axes: "Axes", ends: Mapping[str, tuple[float, float]]) -> None:
    """The label of each method where its line ends, none upon another."""
    low, high = axes.get_ylim()
    heights = spread([y for _, y in ends.values()], (high - low) / 16)
    x = max(x for x, _ in ends.values())
    for method, height in zip(ends, heights, strict=True):
        place = (x, height)
        axes.annotate(LABELS[method], place, (6, 0), textcoords="offset points", va="center", color=LIGHT[method])


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Move labels up until none is nearer to another than `gap`, keeping their order.

    >>> spread([2.0, 0.0, 0.5], gap=1.0)
    [2.0, 0.0, 1.0]
    """
    placed = list(heights)
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    for below, above in pairwise(order):
        placed[above] = max(placed[above], placed[below] + gap)
    return placed


def draw_samples(above: "Axes", below: "Axes", logs: Sequence[Sequence[Event]], offset: int, whose: str = "") -> None:
    """What a method's samples are like on the training data: above their rewards, below entropy and length."""
    draw_measure(above, logs, "reward", f"{whose}training reward", offset)
    draw_measure(below, logs, "entropy", f"{whose}entropy, nats a word", offset)
    draw_measure(below, logs, "length_ratio", f"{whose}length / reference's", offset, dashed=True)
    below.set_ylim(bottom=0)


def draw_measure(
    axes: "Axes", logs: Sequence[Sequence[Event]], key: str, label: str, offset: int, dashed: bool = False
) -> None:
    curves = [
        [(offset + event["epoch"], event["train"][key]) for event in log if key in event["train"]] for log in logs
    ]
    draw(axes, curves, PROPOSED, label, dashed)
    axes.legend(loc="center left", frameon=False, fontsize=9, handlelength=1.6, borderaxespad=0)
    axes.grid(axis="y")


def stages(log: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, int]]:
    """The epoch a stage begins with, and its s; pure XENT has none."""
    marked = [(re.search(r"s = (\d+)", event["stage"]), event["epoch"]) for event in log]
    for s, group in groupby(((int(found[1]), epoch) for found, epoch in marked if found), key=lambda pair: pair[0]):
        yield next(group)[1], s


def mark_stages(panels: Sequence["Axes"], marks: Sequence[tuple[int, int]], offset: int) -> None:
    """A thin line where a stage begins, and its s beside it."""
    every = -(-len(marks) // 8)  # more than eight numbers would touch
    for i, (epoch, s) in enumerate(marks):
        x = offset + epoch - 1  # where the epoch before it ends
        for axes in panels:
            axes.axvline(x, color=LIGHT["rule"], linewidth=0.8, zorder=0)
        if i == 0:
            write_at_top(panels[0], x, "s =", -3, "right")
        if i % every == 0:
            write_at_top(panels[0], x, str(s), 3, "left")


def write_at_top(axes: "Axes", x: float, text: str, shift: float, side: Literal["left", "right"]) -> None:
    """Small text at the upper edge, so many points from x."""
    place = axes.get_xaxis_transform()
    axes.annotate(text, (x, 1), (shift, 0), place, "offset points", ha=side, va="top", fontsize=8, color=LIGHT["soft"])


def standalone(drawing: str) -> str:
    """A drawing of this file as a file of its own, for light and dark pages alike."""
    light, dark = (";".join(f"--{name}:{colour}" for name, colour in theme.items()) for theme in (LIGHT, DARK))
    theme = f"<style>svg{{{light};font-family:sans-serif}}@media(prefers-color-scheme:dark){{svg{{{dark}}}}}</style>"
    return re.sub(r"(<svg[^>]*>)", lambda tag: tag[1] + theme, drawing, count=1)


def svg(figure: "Figure", name: str) -> str:
    """The drawing as an element to put into a page: colours are the page's variables, and its ids its own."""
    file = io.StringIO()
    figure.savefig(file, format="svg", transparent=True)
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", text)
    for variable, colour in LIGHT.items():
        text = text.replace(colour, f"var(--{variable})")
    return text
