"""How long a training step takes: the algorithms, the paper's three models, plain and fast, and where the time goes.

python benchmarks/speed.py --markdown docs/results/speed.md
"""

import argparse
import gc
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from bounds import Bound, bound, kernel_count, launch_ms
from torch import Tensor

from seqmixer.algorithms import ALGORITHMS, Algorithm, Dad, Parts, Sampled
from seqmixer.build import Dimensions, build_model
from seqmixer.config import ModelSettings, RecurrentSettings, TrainingConfig, TransformerSettings
from seqmixer.decoding import fast, sample
from seqmixer.kernels import Programs, plain
from seqmixer.rewards import rouge2_recall, sentence_bleu
from seqmixer.training.step import Step
from seqmixer.types import EOS, PAD, Batch, Reward, Rollout


@dataclass(frozen=True)
class Shape:
    """A model of the paper (Sec. 4)."""

    name: str
    model: ModelSettings
    dimensions: Dimensions
    reward: Reward
    source: int  # words of a source; 0: an image


SHAPES = [
    Shape("translation", RecurrentSettings(hidden=256), Dimensions(25, 22_822, 32_009, 50, None), sentence_bleu, 24),
    Shape("summarization", RecurrentSettings(name="elman", hidden=128), Dimensions(15, 6_828, 12_321, 60, None), rouge2_recall, 32),  # noqa: E501
    Shape("captioning", RecurrentSettings(hidden=512), Dimensions(15, 10_012, None, None, 1024), sentence_bleu, 0),
]  # fmt: skip
LARGE = Shape(  # for comparison, with --shapes transformer
    "transformer",
    TransformerSettings(hidden=512, heads=8, layers=6),
    SHAPES[0].dimensions,
    sentence_bleu,
    24,
)
PARTS = ("sample", "reward", "score", "backward", "update")
LABELS = ["XENT", "DAD", "E2E", "REINFORCE", "MIXER s=T/2", "MIXER s=1"]
FOUR = {"samples": 4}  # of a label that ends in k=4: sentences for each source


@dataclass(frozen=True)
class Row:
    """What a step of one kind takes."""

    shape: str
    algorithm: str
    batch: int
    way: str  # plain or fast
    ms: float
    words_per_second: int  # of the targets
    peak_mib: int
    split: dict[str, float]  # ms of each part
    kernels: int = 0  # programs on the device, of a captured step
    bound: Bound | None = None


def made_up(shape: Shape, size: int, device: torch.device) -> Batch:
    """Random words: targets of 3/4 of T words in the mean, one reference."""
    T, V = shape.dimensions.length, shape.dimensions.target_vocab
    lengths = torch.randint(T // 2, T + 1, (size, 1), device=device)
    steps = torch.arange(T, device=device)
    target = torch.randint(4, V, (size, T), device=device)
    target = torch.where(steps < lengths - 1, target, torch.where(steps == lengths - 1, EOS, PAD))
    if shape.source:
        source = torch.randint(4, shape.dimensions.source_vocab or 5, (size, shape.source), device=device)
        source[:, -1] = EOS
    else:
        source = torch.rand(size, shape.dimensions.features or 1, device=device)
    return Batch(source, target, target.unsqueeze(1))


def algorithm(label: str, shape: Shape, features: int) -> Algorithm:
    """As a config builds it, in its first epoch with rewards; a label that is no name is MIXER's with its s."""
    T = shape.dimensions.length
    forced = {"MIXER s=T/2": T // 2, "MIXER s=1": 1, "E2E": 1}
    later = {"xent_epochs": 0, "mixed_epochs": 1, "delta": T - forced[label]} if label in forced else {}
    name, _, samples = label.lower().partition(" ")
    if name == "dad":
        return Dad([0.5], generate=fast.generate)
    kind = ALGORITHMS[name]
    settings = kind.Settings(name=name, **later, **(FOUR if samples == "k=4" else {}))
    return kind.of(settings, Parts(shape.reward, features, T, shape.dimensions.target_vocab, 1, fast.generate))


def milliseconds(run: Callable[[], object], device: torch.device, repeat: int) -> float:
    """The mean of many calls, after three that do not count."""
    for _ in range(3):
        run()
    wait(device)
    began = time.perf_counter()
    for _ in range(repeat):
        run()
    wait(device)
    return 1000 * (time.perf_counter() - began) / repeat


def wait(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize()


def measure(shape: Shape, name: str, size: int, way: str, device: torch.device, repeat: int) -> Row:
    """One row of the table. Parts are measured as programs of their own, longer by one part each."""
    torch.manual_seed(1)
    model = build_model(shape.model, shape.dimensions).to(device).train()
    learner = algorithm(name, shape, model.features).to(device)
    batch = made_up(shape, size, device)
    settings = TrainingConfig(fast=way == "fast")
    step = Step(model, learner, settings)
    if device.type != "cpu":
        gc.collect()  # what earlier rows captured
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    whole = milliseconds(lambda: step(batch, 0), device, repeat)
    peak = torch.cuda.max_memory_allocated() // 2**20 if device.type != "cpu" else 0
    with plain() if way == "plain" else nullcontext():
        split = parts(step, batch, whole, device, repeat)
    row = Row(shape.name, name, size, way, whole, round(1000 * int(batch.mask.sum()) / whole), peak, split)
    if way == "plain" or device.type == "cpu":
        return row
    kernels, parameters = kernel_count(step, batch), sum(parameter.numel() for parameter in model.parameters())
    sampled, sentences = isinstance(learner, Sampled | Dad), size * getattr(learner, "samples", 1)
    least = bound(shape.model, shape.dimensions, sampled, sentences, parameters, kernels * launch_ms())
    return replace(row, kernels=kernels, bound=least)


def parts(step: Step, batch: Batch, whole: float, device: torch.device, repeat: int) -> dict[str, float]:
    """sample / score / reward / backward / update"""
    programs = Programs()
    tensors = (batch.source, batch.target, batch.references)

    def timed(name: str, run: Callable[..., object]) -> float:
        if step.settings.fast:
            return milliseconds(lambda: programs(name, run, *tensors), device, repeat)
        return milliseconds(lambda: run(*tensors), device, repeat)

    def forward(*inputs: Tensor) -> Tensor:
        loss: Tensor = step.algorithm(step.model, Batch(*inputs), 0, step.scheduled).value
        return loss

    def backward(*inputs: Tensor) -> None:
        step.model.zero_grad(set_to_none=True)
        step.algorithm.zero_grad(set_to_none=True)
        forward(*inputs).backward()

    k = getattr(step.algorithm, "samples", 1)

    def sampling(source: Tensor, target: Tensor, references: Tensor) -> Tensor:
        given = target.repeat_interleave(k, 0)
        return step.algorithm.generate(step.model, source, given, torch.zeros_like(given, dtype=torch.bool), sample)

    def reward(source: Tensor, target: Tensor, references: Tensor) -> Tensor:
        assert step.algorithm.reward is not None
        return step.algorithm.reward(Rollout(target.repeat_interleave(k, 0), references.repeat_interleave(k, 0)))

    sampled = isinstance(step.algorithm, Sampled | Dad)
    found = {"sample": timed("sample", sampling) if sampled else 0.0}
    found["reward"] = timed("reward", reward) if step.algorithm.reward else 0.0
    forward_ms, backward_ms = timed("forward", forward), timed("backward", backward)
    found["score"] = forward_ms - found["sample"] - found["reward"]
    found["backward"] = backward_ms - forward_ms
    found["update"] = whole - backward_ms
    return {name: round(value, 3) for name, value in found.items()}


def rows(sizes: list[int], device: torch.device, shapes: list[str], labels: list[str], repeat: int) -> Iterator[Row]:
    for shape in (shape for shape in (*SHAPES, LARGE) if shape.name in shapes):
        for size in sizes:
            for name in labels:
                for way in ("plain", "fast"):
                    yield measure(shape, name, size, way, device, repeat if way == "fast" else max(3, repeat // 10))


def first_steps(device: torch.device) -> None:
    """A first step of MIXER as it is, a second that is captured, and a third that is replayed."""
    shape = SHAPES[0]
    model = build_model(shape.model, shape.dimensions).to(device).train()
    step = Step(model, algorithm("MIXER s=1", shape, model.features).to(device), TrainingConfig())
    batch = made_up(shape, 128, device)
    for _ in range(3):
        step(batch, 0)
    wait(device)


def start_up(device: torch.device) -> dict[str, float]:
    """Seconds from the start of a process to the end of its first replayed step, and again with the caches it left.

    Those are compiled kernels, and compiled Python, which not every installation has beside its sources.
    """
    found = {}
    with tempfile.TemporaryDirectory() as cache:
        for name in ("cold", "warm"):
            began = time.time()
            command = [sys.executable, os.path.abspath(__file__), "--first-steps", "--device", str(device)]
            caches = {"TRITON_CACHE_DIR": f"{cache}/kernels", "PYTHONPYCACHEPREFIX": f"{cache}/python"}
            allowed = {"PYTHONDONTWRITEBYTECODE": ""}  # to write the second
            subprocess.run(command, check=True, env={**os.environ, **caches, **allowed})
            found[name] = round(time.time() - began, 1)
    return found


def page(machine: str, start: dict[str, float], table: list[Row], command: str) -> Iterator[str]:
    """The results as a page, fast beside plain, and what bounds each fast row."""
    yield from ("# The training step", "", f"`{command}`", "", f"{machine}, torch {torch.__version__}. Milliseconds.")
    if start:
        yield f"From the start of a process to its first replayed step: {start['cold']} s, and {start['warm']} s"
        yield "with the compiled kernels and the compiled Python of an earlier process in caches."
    yield ""
    yield "| model | algorithm | batch | plain | fast | times | words/s | MiB | " + " | ".join(PARTS) + " |"
    yield "|---|---|" + "--:|" * (6 + len(PARTS))
    plain_ms = {(row.shape, row.algorithm, row.batch): row.ms for row in table if row.way == "plain"}
    fast_rows = [row for row in table if row.way == "fast"]
    for row in fast_rows:
        before = plain_ms[row.shape, row.algorithm, row.batch]
        parts = [f"{row.split[name]:.2f}" if row.split[name] else "" for name in PARTS]
        cells = [row.shape, row.algorithm, row.batch, f"{before:.2f}", f"**{row.ms:.2f}**", f"{before / row.ms:.1f}"]
        yield "| " + " | ".join(map(str, [*cells, f"{row.words_per_second:,}", row.peak_mib or "", *parts])) + " |"
    bounded = [(row, row.bound) for row in fast_rows if row.bound]
    if bounded:
        yield from ("", "What bounds a fast step (`benchmarks/bounds.py`), and how far it is from that:", "")
    for row, least in bounded:
        each = f"launches {least.launches:.2f}, bytes {least.bytes:.2f}, arithmetic {least.arithmetic:.2f}"
        yield (
            f"- {row.shape}, {row.algorithm}, batch {row.batch}: {least.tightest} ({each} ms; {row.kernels} launches), "
            f"{row.ms / least.ms:.1f} times its bound."
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", type=Path, help="write the table here, and JSON beside it")
    parser.add_argument("--batch", type=int, nargs="+", default=[32, 128, 512])
    parser.add_argument("--shapes", nargs="+", default=[shape.name for shape in SHAPES])
    parser.add_argument("--repeat", type=int, default=50)
    parser.add_argument("--algorithms", nargs="+", default=LABELS, help="such as 'XENT' 'MIXER s=1' 'RLOO k=4'")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--no-start", action="store_true", help="leave out the time to start")
    parser.add_argument("--first-steps", action="store_true", help="only start and take three steps")
    options = parser.parse_args()
    device = torch.device(options.device)
    if options.first_steps:
        return first_steps(device)
    machine = torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(f"{machine}, torch {torch.__version__}")
    print(f"{'model':14}{'algorithm':13}{'batch':>6} {'way':6}{'ms/step':>9}{'words/s':>11}{'MiB':>7}  parts, ms")
    table = []
    for row in rows(options.batch, device, options.shapes, options.algorithms, options.repeat):
        split = "  ".join(f"{name} {value:.2f}" for name, value in row.split.items() if value)
        print(
            f"{row.shape:14}{row.algorithm:13}{row.batch:6} {row.way:6}{row.ms:9.2f}{row.words_per_second:11,}"
            f"{row.peak_mib:7}  {split}",
            flush=True,
        )
        table.append(row)
    start = {} if options.no_start else start_up(device)
    print("start-up, seconds:", start)
    if options.markdown:
        values = {
            "machine": machine,
            "torch": torch.__version__,
            "start": start,
            "rows": [asdict(row) for row in table],
        }
        options.markdown.with_suffix(".json").write_text(json.dumps(values, indent=1))
        options.markdown.write_text("\n".join(page(machine, start, table, shlex.join(["python", *sys.argv]))) + "\n")


if __name__ == "__main__":
    main()
