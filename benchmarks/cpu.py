"""What is fastest on a CPU: plain torch, seqmixer's fused programs or torch.compile, with one thread or more.

python benchmarks/cpu.py --markdown docs/results/cpu.md
"""

import argparse
import json
import os
import platform
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from speed import SHAPES, Shape, algorithm, made_up, milliseconds

from seqmixer.build import Dimensions, build_model
from seqmixer.config import RecurrentSettings, TrainingConfig
from seqmixer.kernels import plain
from seqmixer.rewards import sentence_bleu
from seqmixer.training.step import Step

CPU = torch.device("cpu")
TOY = Shape("toy-translation", RecurrentSettings(hidden=64), Dimensions(15, 60, 60, 20, None), sentence_bleu, 16)
SIZES = {TOY: 64, SHAPES[1]: 32, SHAPES[0]: 32}  # the demo's model and batch, and two of the paper's
ALGORITHMS = ("XENT", "MIXER s=1")


@dataclass(frozen=True)
class Row:
    """A step of one kind."""

    shape: str
    batch: int
    algorithm: str
    way: str  # plain, fused or compiled
    threads: int
    ms: float
    begins: float  # seconds before the first step is done


def measure(shape: Shape, name: str, way: str, threads: int, repeat: int) -> Row:
    torch.manual_seed(1)
    torch.set_num_threads(threads)
    torch.compiler.reset()
    model = build_model(shape.model, shape.dimensions).train()
    if way == "compiled":  # the two parts a step spends its time in: a whole sentence, and one word of it
        with plain():
            model.unroll, model.step = torch.compile(model.unroll), torch.compile(model.step)
    step = Step(model, algorithm(name, shape, model.features), TrainingConfig(fast=way == "fused"))
    batch = made_up(shape, SIZES[shape], CPU)
    began = time.perf_counter()
    step(batch, 0)
    begins = time.perf_counter() - began
    ms = milliseconds(lambda: step(batch, 0), CPU, repeat)
    return Row(shape.name, SIZES[shape], name, way, threads, round(ms, 2), round(begins, 1))


def rows(repeat: int, cores: int) -> Iterator[Row]:
    for shape in SIZES:
        for name in ALGORITHMS:
            for way in ("plain", "fused", "compiled"):
                for threads in sorted({1, cores}):
                    yield measure(shape, name, way, threads, repeat)


def page(machine: str, table: list[Row], command: str) -> Iterator[str]:
    yield from ("# The training step on a CPU", "", f"`{command}`", "")
    yield f"{machine}, torch {torch.__version__}. Milliseconds a step; in brackets the seconds before the first one is"
    yield "done. plain: torch, operation by operation; fused: what seqmixer does, `training.fast = true`; compiled:"
    yield "plain torch with `torch.compile` on the two parts a step spends its time in, `unroll` and `step`."
    yield ""
    ways = list(dict.fromkeys((row.way, row.threads) for row in table))
    names = [f"{way}, {threads} thread{'s' * (threads > 1)}" for way, threads in ways]
    yield "| model | algorithm | batch | " + " | ".join(names) + " |"
    yield "|---|---|" + "--:|" * (1 + len(ways))
    for shape, name in dict.fromkeys((row.shape, row.algorithm) for row in table):
        found = {(row.way, row.threads): row for row in table if (row.shape, row.algorithm) == (shape, name)}
        least = min(found.values(), key=lambda row: row.ms)
        cells = [f"{'**' * (row is least)}{row.ms:.1f}{'**' * (row is least)} ({row.begins})" for row in found.values()]
        yield "| " + " | ".join([shape, name, str(least.batch), *cells]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", type=Path, help="write the table here, and JSON beside it")
    parser.add_argument("--repeat", type=int, default=10)
    options = parser.parse_args()
    cores = os.cpu_count() or 1
    table = []
    with tempfile.TemporaryDirectory() as empty:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = empty  # nothing compiled by an earlier process counts
        for row in rows(options.repeat, cores):
            table.append(row)
            print(row, flush=True)
    if options.markdown:
        command = shlex.join(["python", *sys.argv])
        lines = page(f"{cores} cores, {platform.machine()}", table, command)
        options.markdown.write_text("\n".join(lines) + "\n")
        options.markdown.with_suffix(".json").write_text(json.dumps([asdict(row) for row in table], indent=1))


if __name__ == "__main__":
    main()
