"""The measurements of a trained run: the test split decoded with beams of 1 to 10, scored by both protocols.

`paper`: what the released evaluator computes: the sentences of common source lengths, cut at T. `standard`: complete
references (scoring.py). Which metrics each of them reports is in protocols.toml.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from seqmixer import __version__, files
from seqmixer.build import Metrics
from seqmixer.data import Task, in_order
from seqmixer.decoding import Search
from seqmixer.evaluation import device_of
from seqmixer.evaluation.scoring import METRICS, kept, paper_signature, standard
from seqmixer.experiments.grid import data_of
from seqmixer.kernels import warming
from seqmixer.rewards import BUILT_IN, Metric
from seqmixer.runs import Run
from seqmixer.types import Batch

WIDTHS = range(1, 11)
ENDS = (1, 10)  # greedy search and the widest beam: scored by every standard metric, and their counts are kept
COUNTS = "counts.safetensors"
PROTOCOLS = files.read_toml(Path(__file__).with_name("protocols.toml"))


@dataclass(frozen=True)
class Protocol:
    """The paper's way to score a test split."""

    metrics: Sequence[Metric]
    chosen: Sequence[int]  # the sentences that are scored
    signatures: Mapping[str, str]  # by metric

    def counts(self, words: Tensor, tests: Sequence[Batch]) -> dict[str, Tensor]:
        """By metric: the counts of the chosen sentences.  (n, T) -> (m, S)"""
        found = {}
        for metric in self.metrics:
            rows = [
                metric.statistics(batch.rollout(part))
                for part, batch in zip(words.split([len(batch) for batch in tests]), tests, strict=True)
            ]
            found[metric.name] = torch.cat(rows).cpu()[list(self.chosen)]
        return found


def paper_protocol(run: Run, task: Task) -> Protocol:
    meta = task.test.meta
    if task.features is not None:
        best = BUILT_IN[main_metric("", images=True)]
        signature = f"paper|{best.signature}|cut:{task.length}|n:{len(meta)}|seqmixer:{__version__}"
        return Protocol([best], range(len(meta)), {best.name: signature})
    references = [each["references"] for each in meta]
    chosen = kept([str(each["source"]) for each in meta], references)
    metrics = Metrics(run.config, task, run.folder).every(METRICS["paper"])
    vocab = str(len(task.target_vocab))  # others are UNK, which ROUGE skips
    signatures = {m.name: paper_signature(m, references, chosen, task.length, vocab) for m in metrics}
    return Protocol(metrics, chosen, signatures)


def reported(metric: str, images: bool, protocol: str) -> tuple[str, ...]:
    """The metrics of the tables, by the recipe's own."""
    return tuple(PROTOCOLS["images" if images else metric][protocol])


def main_metric(metric: str, images: bool) -> str:
    """The metric of Fig. 5 in the paper's protocol."""
    return reported(metric, images, "paper")[0] if images else metric


def standard_metrics(metric: str, images: bool) -> tuple[str, ...]:
    """What the standard protocol reports, the metric of Fig. 5 first."""
    return reported(metric, images, "standard")


def judge(run: Run, metrics: Sequence[str]) -> Mapping[str, Any]:
    """Scores and decoding time by width of the beam; the counts go into the run folder, for paired tests.

    `metrics` are those of the standard protocol; between greedy search and the widest beam only the first is scored.
    """
    task = data_of(run)
    batch_size, device = run.config.evaluation.batch_size, device_of(run.model)
    tests = [batch.to(device) for batch in in_order(task.test, batch_size, task.length)]
    protocol = paper_protocol(run, task)
    references = [each["references"] for each in task.test.meta]
    beams: dict[str, dict[str, Any]] = {}
    kept_counts: dict[str, Tensor] = {}
    signatures = {f"paper {name}": signature for name, signature in protocol.signatures.items()}
    for width in WIDTHS:
        words, seconds = decode(run, tests, width)
        counts = protocol.counts(words, tests)
        scores = {metric.name: float(metric.corpus(counts[metric.name])) for metric in protocol.metrics}
        beams[str(width)] = {"seconds": round(seconds, 3), "paper": scores}
        hypotheses = [task.target_vocab.decode(row) for row in words.tolist()]
        found = standard(hypotheses, references, metrics if width in ENDS else metrics[:1])
        beams[str(width)]["standard"] = {score.metric: score.value for score in found}
        signatures |= {f"standard {score.metric}": score.signature for score in found}
        if width in ENDS:
            kept_counts |= {f"{width} {name}": rows.contiguous() for name, rows in counts.items()}
    save_file(kept_counts, run.folder / COUNTS)
    return {"beams": beams, "signatures": signatures, "sentences": len(task.test)}


def decode(run: Run, tests: list[Batch], width: int) -> tuple[Tensor, float]:
    """The words for the test split, and the seconds it took once the machine was warm.  -> (n, T)"""
    length, search = run.dimensions.length, Search(beam=width)
    shapes = {batch.source.shape: batch for batch in tests}  # each has a program of its own
    for batch in [tests[0], *[*shapes.values()] * warming(tests[0].source)]:
        search.best(run.model, batch.source, length).cpu()
    began = time.perf_counter()
    words = torch.cat([search.best(run.model, batch.source, length) for batch in tests])
    words.cpu()  # waits for the device
    return words, time.perf_counter() - began


def read_counts(run: Path, width: int, metric: str) -> Tensor:
    """The counts that `judge` wrote.  -> (m, S)"""
    return load_file(run / COUNTS)[f"{width} {metric}"]
