"""One experiment written down: a page that needs no other file, Markdown with figures beside it, and JSON."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from seqmixer import __version__
from seqmixer.experiments.figures import DARK, LIGHT, standalone
from seqmixer.experiments.paper import tables
from seqmixer.experiments.paper.beams import ENDS
from seqmixer.experiments.paper.results import Results
from seqmixer.experiments.paper.tables import Table
from seqmixer.experiments.report import (
    Example,
    duration,
    examples,
    markdown_header,
    markdown_row,
    number,
    template,
)
from seqmixer.experiments.summary import LABELS, METRIC_LABELS

CAPTIONS = {
    "gains": "Score relative to XENT, which is the line at 1 (the paper's Fig. 5, right); a dot is one seed.",
    "beams": "Test score by width of the beam (Fig. 6). The dashed lines are MIXER, greedy and with the widest beam.",
    "cross": "Score relative to XENT by two metrics (Fig. 8): MIXER was trained on ROUGE-2, MIXER on BLEU on BLEU.",
    "curves": "Validation score and perplexity; what MIXER is paid and how it writes. Grey: the base, trained with "
    "XENT, that every method starts from; dashed: REINFORCE from random weights, if it was run. The upright lines are "
    "MIXER's stages: the first s words are trained with XENT, the rest with REINFORCE.",
}


def title(results: Results) -> str:
    return f"Sequence-level training: {results.experiment.task}, {results.experiment.kind} recipe"


def headline(results: Results) -> str:
    """What was found, in a sentence."""
    ours, theirs = results.main.cells["mixer"].ratio, results.published.scores
    paper = f"in the paper {theirs['mixer'] / theirs['xent']:.2f} times"
    if ours is None:
        return f"XENT scores 0, so that MIXER's gain has no ratio; {paper}."
    return f"MIXER scores {ours:.2f} times what XENT scores; {paper}."


def details(results: Results) -> str:
    """By how much, how far to trust it, and against beam search."""
    cells, wide = results.main.cells, max(ENDS)
    greedy, searched = (test for test in results.tests if test.method == "mixer")
    largest = f"{max(greedy.p_values):.3f}"
    chance = (
        f"p ≤ {largest} with every seed" if greedy.better else f"not significantly with every seed (p up to {largest})"
    )
    beam = results.cell("xent", "paper", results.metric, wide).mean
    order = "above" if cells["mixer"].mean > beam else "below"
    sure = "with every seed" if searched.better else "not significantly with every seed"
    return (
        f"{METRIC_LABELS[results.metric]} {number(cells['mixer'].mean)} against {number(cells['xent'].mean)}, greedy "
        f"search, {tables.seeds(results)}; {chance}. MIXER's greedy search is {order} XENT's beam of {wide} "
        f"({number(beam)}){', ' + sure if order == 'above' else ''}."
    )


def all_tables(results: Results) -> list[Table]:
    """In the order of the page; Fig. 8's only where it was run."""
    first = [tables.scores, tables.measures, tables.significance, tables.beams]
    crossed = [tables.cross] if results.cross else []
    last = [tables.schedule, tables.decoding, tables.times, tables.every_seed, tables.data]
    return [make(results) for make in (*first, *crossed, *last)]


def shown_examples(results: Results) -> list[Example]:
    """Fig. 7: the first test sentences that XENT and MIXER write differently."""
    return examples(results.grid, results.grid.tasks[0])


def write_page(results: Results, drawn: dict[str, str], commands: Sequence[str], path: Path) -> Path:
    from markupsafe import Markup

    shown = {table.title: table for table in all_tables(results)}
    page = template("paper/page.html").render(
        title=title(results),
        headline=headline(results),
        details=details(results),
        tables=shown,
        order=list(shown),  # of titles: some have the name of the metric in them
        drawings={name: Markup(drawing) for name, drawing in drawn.items()},
        captions=CAPTIONS,
        cards=shown_examples(results),
        labels=LABELS,
        light=LIGHT,
        dark=DARK,
        commands=commands,
        grid=results.grid,
        signatures=list(tables.signatures(results)),
        version=__version__,
    )
    path.write_text(page, encoding="utf-8")
    return path


def write_markdown(results: Results, drawn: dict[str, str], commands: Sequence[str], folder: Path) -> Path:
    """FOLDER/STEM.md with its figures and STEM.json."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = results.experiment.stem
    for name, drawing in drawn.items():
        (folder / f"{stem}-{name}.svg").write_text(standalone(drawing), encoding="utf-8")
    (folder / f"{stem}.json").write_text(json.dumps(as_json(results, commands), indent=1), encoding="utf-8")
    path = folder / f"{stem}.md"
    path.write_text("\n".join(markdown(results, drawn, commands)) + "\n", encoding="utf-8")
    return path


def markdown(results: Results, drawn: dict[str, str], commands: Sequence[str]) -> Iterator[str]:
    stem = results.experiment.stem
    yield from [f"# {title(results)}", "", f"{headline(results)} {details(results)}", ""]
    for name in drawn:
        yield from [f"![{CAPTIONS[name]}]({stem}-{name}.svg)", ""]
    for table in all_tables(results):
        yield from [f"## {table.title}", "", *markdown_header(table.columns)]
        yield from (markdown_row(row) for row in table.rows)
        yield from ["", table.note, ""] if table.note else [""]
    yield from ["## What they write", "", f"Greedy search, seed {results.grid.seeds[0]}.", ""]
    for example in shown_examples(results):
        yield from ["```", *example_lines(example), "```", ""]
    yield from ["## How", "", *(f"- {name}: `{signature}`" for name, signature in tables.signatures(results))]
    spent = duration(results.grid.seconds)
    yield from [f"- {results.grid.machine}; seqmixer {__version__}; {spent} in all", "", "```", *commands, "```"]


def example_lines(example: Example) -> Iterator[str]:
    yield f"{'source':<14} {example.source}"
    for reference in example.references:
        yield f"{'reference':<14} {reference}"
    for method, words in example.hypotheses:
        yield f"{LABELS[method]:<14} {' '.join(word for word, _ in words)}"


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
        "runs": [results.runs[method, seed] for method in ("base", *results.methods) for seed in results.grid.seeds],
    }
