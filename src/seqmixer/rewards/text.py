"""Rewards made of a user's own Python function, on strings or on word ids, and the checks that such a function needs.

These leave the device and look at each sentence; the built-in rewards do neither.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from seqmixer.errors import RewardError
from seqmixer.functions import Pool, Row, Scorer, read, scores, undisturbed
from seqmixer.rewards import ngrams
from seqmixer.rewards.starting import Pending, Startable
from seqmixer.types import EOS, PAD, Rollout

END = "</s>"  # EOS as a word of text

Decode = Callable[[Sequence[int]], str]  # words before EOS -> text
Run = Callable[[Sequence[Row]], Callable[[], list[float]]]  # rows -> what waits for their scores


def on_text(
    function: Callable[..., Any],
    decode: Decode,
    *,
    workers: int = 0,
    seconds: float | None = None,
    eos: bool = False,
) -> Startable:
    """A reward of a function of strings, of any kind that `functions.kinds` knows.

    The hypothesis is decoded; references, source and further columns are the text as it was before it became ids, from
    `rollout.meta`. The sequence is scored with its forced words.

    Args:
        function: f(hypothesis, references), f(hypotheses, references, sources), f(completions, **columns), ...
        decode: ids to text.
        workers: how many processes share a batch; 0 calls the function in this process.
        seconds: how long a call may take before the run is stopped, which needs a process: one, with 0 workers.
        eos: whether a sentence that ended, and each reference, has the last word "</s>".

    >>> def share(hypothesis: str, references: list[str]) -> float:
    ...     return len(set(hypothesis.split()) & set(references[0].split())) / len(references[0].split())
    >>> reward = on_text(share, decode=lambda ids: " ".join("_ _ _ ? the cat sat".split()[i] for i in ids))
    >>> words = torch.tensor([[4, 5, 2]])
    >>> reward(Rollout(words, words.unsqueeze(1), meta=[{"references": ["the cat sat down"]}]))
    tensor([0.5000])
    """
    scorer = read(function)
    run = _run(scorer, workers, seconds)

    def start(rollout: Rollout) -> Pending:
        require_text(rollout, scorer.name)
        hypotheses = [decode(words) for words in sentences(rollout.words)]
        rows = [{**meta, "hypothesis": text} for meta, text in zip(rollout.meta, hypotheses, strict=True)]
        if eos:
            ends = (rollout.words == EOS).any(-1).tolist()  # (B,)
            rows = [_with_end(row, end) for row, end in zip(rows, ends, strict=True)]
        return _started(run, scorer, rows, rollout)

    return Startable(start)


def on_words(
    function: Callable[..., Any], *, workers: int = 0, seconds: float | None = None, eos: bool = False
) -> Startable:
    """A reward of a function of word ids: f(hypothesis, references) or f(hypotheses, references).

    The sequence is scored with its forced words. Missing references are skipped. `workers` and `seconds`
    are as for `on_text`. EOS is no word, but with `eos`.

    >>> reward = on_words(lambda hypothesis, references: float(hypothesis in references))
    >>> reward(Rollout(torch.tensor([[4, 5, 2], [4, 2, 0]]), torch.tensor([[[4, 5, 2]], [[4, 5, 2]]])))
    tensor([1., 0.])
    """
    scorer = read(function)
    run = _run(scorer, workers, seconds)

    def start(rollout: Rollout) -> Pending:
        present = (~ngrams.missing(rollout.references)).tolist()  # B lists of R
        references = [
            [words for words, there in zip(sentences(several, eos), flags, strict=True) if there]
            for several, flags in zip(rollout.references, present, strict=True)
        ]
        pairs = zip(sentences(rollout.words, eos), references, strict=True)
        return _started(
            run, scorer, [{"hypothesis": words, "references": several} for words, several in pairs], rollout
        )

    return Startable(start)


def values_of(function: Callable[..., Any], available: Sequence[Mapping[str, Any]]) -> Tensor:
    """What a function gives for rows of text: "hypothesis", "references" and any further columns.  -> (n,)"""
    scorer = read(function)
    return _pending(_run(scorer, 0, None), scorer, available)()


def sentences(words: Tensor, eos: bool = False) -> list[list[int]]:
    """The words of each row before EOS or PAD; with `eos`, that of a row that has one, too.  (B, T) -> B lists"""
    lengths = (words != PAD).sum(-1) if eos else ngrams.lengths(words)  # (B,)
    return [row[:n] for row, n in zip(words.tolist(), lengths.tolist(), strict=True)]


def _with_end(row: Mapping[str, Any], ended: bool) -> dict[str, Any]:
    references = [f"{text} {END}" for text in row["references"]]
    return {**row, "hypothesis": f"{row['hypothesis']} {END}" if ended else row["hypothesis"], "references": references}


def _run(scorer: Scorer, workers: int, seconds: float | None) -> Run:
    """In this process the function is called when its scores are collected, while the device is at work."""
    if workers or seconds is not None:
        return Pool(scorer, max(workers, 1), seconds).submit

    def collect(rows: Sequence[Row]) -> list[float]:
        with undisturbed():
            return list(scores(scorer, rows))

    return lambda rows: partial(collect, rows)


def _started(run: Run, scorer: Scorer, available: Sequence[Mapping[str, Any]], rollout: Rollout) -> Pending:
    pending = _pending(run, scorer, available)
    return lambda: pending().to(rollout.words.device)


def _pending(run: Run, scorer: Scorer, available: Sequence[Mapping[str, Any]]) -> Pending:
    """Give the function the columns that it asks for."""
    rows = _rows(scorer, available)
    collect = run(rows)

    def reward() -> Tensor:
        r = torch.tensor(collect(), dtype=torch.float32)  # (B,)
        return _finite(r, scorer.name, lambda i: rows[i]["hypothesis"])

    return reward


def _rows(scorer: Scorer, available: Sequence[Mapping[str, Any]]) -> list[Row]:
    columns = scorer.columns([column for column in available[0] if all(column in row for row in available)])
    for i, row in enumerate(available):
        missing = [column for column in columns if column not in row]
        if missing:
            there = ", ".join(sorted(row.keys() - {"hypothesis"})) or "none"
            what = f"the column {missing[0]!r}, missing for sequence {i}; it has: {there}"
            raise RewardError(f"reward {scorer.name!r} reads {what}")
    return [{column: _own(row[column]) for column in columns} for row in available]


def _own(value: Any) -> Any:
    """A copy of a list: the function may change it."""
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


def require_text(rollout: Rollout, name: str) -> None:
    """Refuse a rollout without the text that the reward of this name reads."""
    if len(rollout.meta) != len(rollout.words):
        got = f"{len(rollout.words)} sequences came with the text of {len(rollout.meta)}"
        what = f"reads text, but {got}; give `meta` to the rollout, one row per sequence"
        raise RewardError(f"reward {name!r} {what}")


def _finite(r: Tensor, name: str, hypothesis: Callable[[int], object]) -> Tensor:
    bad = (~r.isfinite()).nonzero()  # (number of them, 1)
    if len(bad):
        i = int(bad[0])
        what = f"{r[i].item()} for sequence {i}, {hypothesis(i)!r}"
        raise RewardError(f"reward {name!r} returned {what}; a reward is one finite number")
    return r
