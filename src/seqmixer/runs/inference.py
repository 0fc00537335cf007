"""Use a trained run: sources in, sentences out, batch by batch, so that any amount of text can flow through."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from seqmixer.data import Split, in_order
from seqmixer.decoding import Search
from seqmixer.errors import DataError
from seqmixer.evaluation import device_of
from seqmixer.runs import Run
from seqmixer.types import EOS

BATCH = 64  # sources that are read, and written for, at a time


@dataclass(frozen=True)
class Written:
    """The sentences for one source, best first."""

    source: str
    hypotheses: list[str]
    log_probs: list[float]  # of the sentence, EOS included


def write(run: Run, sources: Iterable[str] | Tensor, search: Search, batch_size: int = BATCH) -> Iterator[Written]:
    """Sentences for lines of text, or for image features (n, D), in order. An empty line gives an empty sentence.

    For a language model the lines do not matter: each gives one sentence.
    """
    wanted = run.dimensions.features
    got = sources.shape[1] if isinstance(sources, Tensor) else None
    if wanted != got:
        kinds = {number: f"image features, {number} a row" if number else "lines of text" for number in (wanted, got)}
        raise DataError(f"{run.folder} is a model of {kinds[wanted]}, but was given {kinds[got]}")
    for names, split in chunks(run, sources, batch_size):
        (batch,) = in_order(split, batch_size, run.dimensions.length)
        found = search.hypotheses(run.model, batch.source.to(device_of(run.model)), run.dimensions.length)
        for name, words, log_prob in zip(names, found.words, found.log_prob, strict=True):
            if run.source_vocab and not name.strip():
                yield Written(name, [""], [0.0])
            else:
                yield written(run, name, words[: search.nbest], log_prob[: search.nbest])


def chunks(run: Run, sources: Iterable[str] | Tensor, size: int) -> Iterator[tuple[list[str], Split]]:
    """Sources with their names, some at a time."""
    if isinstance(sources, Tensor):
        for start in range(0, len(sources), size):
            rows = sources[start : start + size]
            names = [f"row {start + i}" for i in range(len(rows))]
            yield names, Split(rows, [[[EOS]]] * len(rows), [{}] * len(rows))
        return
    lines = iter(sources)
    while names := list(islice(lines, size)):
        ids = [run.source_vocab.encode(line) if run.source_vocab else [] for line in names]
        yield names, Split(ids, [[[EOS]]] * len(names), [{}] * len(names))


def written(run: Run, source: str, words: Tensor, log_prob: Tensor) -> Written:
    there = torch.isfinite(log_prob)  # (K,) a small vocabulary may not have as many sentences as asked for
    texts = [run.target_vocab.decode(row) for row in words[there].tolist()]
    return Written(source, texts, log_prob[there].tolist())
