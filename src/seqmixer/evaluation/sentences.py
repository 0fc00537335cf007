"""test.jsonl: a line for each test sentence, with what the best model wrote for it and what each score counts of it."""

import json
from pathlib import Path

import torch
from typing_extensions import TypedDict

from seqmixer import files
from seqmixer.errors import RunError
from seqmixer.evaluation.corpus import Evaluation, Scored, TestScore, read_scores

SENTENCES = "test.jsonl"


class Sentence(TypedDict):
    """A line."""

    source: str
    references: list[str]
    hypothesis: str
    counts: dict[str, list[float]]  # by metric: its statistics (S,)


def write_sentences(run: Path, test: Evaluation) -> None:
    counts = {each.metric: each.statistics.float().tolist() for each in test.scored}
    lines = [
        Sentence(
            source=source, references=references, hypothesis=hypothesis, counts={k: v[i] for k, v in counts.items()}
        )
        for i, (source, references, hypothesis) in enumerate(
            zip(test.sources, test.references, test.hypotheses, strict=True)
        )
    ]
    files.write(run / SENTENCES, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


def read_sentences(run: Path) -> Evaluation | None:
    """What `evaluate` gave for the test split when the run was over; None where that was not kept."""
    path = run / SENTENCES
    if not path.is_file():
        return None
    scores = read_scores(run)
    first = TestScore(scores.test, scores.signature)
    scored = {scores.metric: first, **scores.others}
    lines: list[Sentence] = []
    for number, line in enumerate(files.read_bytes(path).splitlines(), 1):
        lines.append(files.parse_json(line, Sentence, f"{path}:{number}"))
        if lines[-1]["counts"].keys() != scored.keys():
            raise RunError(f"{path}:{number}: no counts of {', '.join(scored)}, which {run / 'scores.json'} has")
    try:
        statistics = {name: torch.tensor([line["counts"][name] for line in lines]) for name in scored}
    except ValueError:
        raise RunError(f"{path}: counts of several lengths") from None
    return Evaluation(
        [Scored(name, each.test, each.signature, statistics[name]) for name, each in scored.items()],
        hypotheses=[line["hypothesis"] for line in lines],
        references=[line["references"] for line in lines],
        sources=[line["source"] for line in lines],
        effects=scores.effects,
    )
