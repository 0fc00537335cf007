"""One report for all: pages, Markdown, curves and test sentences of any runs."""

from seqmixer.experiments.report.page import (
    Bars,
    Chapter,
    Curves,
    Drawing,
    History,
    Page,
    Part,
    ReportTable,
    Sentences,
    made,
    number,
    require_extra,
    spelled,
    versions,
)
from seqmixer.experiments.report.sentences import Outputs, System, by_test_set, of_grid, outputs

__all__ = [
    "Bars",
    "Chapter",
    "Curves",
    "Drawing",
    "History",
    "Outputs",
    "Page",
    "Part",
    "ReportTable",
    "Sentences",
    "System",
    "by_test_set",
    "made",
    "number",
    "of_grid",
    "outputs",
    "require_extra",
    "spelled",
    "versions",
]
