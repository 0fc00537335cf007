"""One report for all: pages, Markdown, curves and test sentences of any runs."""
