"""How fast a training step could be: the time its launches, its bytes and its arithmetic take at the least.

Bytes and arithmetic are those of the algorithm as it is written (what must be read, written and multiplied), at the
peak rates of the device; launches are counted, each at the time of an operation on one number.
"""

from dataclasses import dataclass

import torch
from torch.profiler import ProfilerActivity, profile

from seqmixer.build import Dimensions
from seqmixer.config import ModelSettings
from seqmixer.training.step import Step
from seqmixer.types import Batch

PEAK = {"NVIDIA H200": (4.8e12, 494.5e12)}  # bytes/s; TF32 operations/s, dense (data sheet)


@dataclass(frozen=True)
class Bound:
    """The least milliseconds of a step, by what they go into."""

    launches: float
    bytes: float
    arithmetic: float

    @property
    def tightest(self) -> str:
        return max(("launches", "bytes", "arithmetic"), key=lambda name: float(vars(self)[name]))

    @property
    def ms(self) -> float:
        return max(self.launches, self.bytes, self.arithmetic)


def bound(
    model: ModelSettings,
    dimensions: Dimensions,
    sampled: bool,
    sentences: int,
    parameters: int,
    launches: float,
) -> Bound | None:
    """None where the device's peaks are not known, or the model is not recurrent.

    Args:
        sampled: whether the model writes the sentences first.
        sentences: that are scored.
        launches: ms of all launches.
    """
    name = torch.cuda.get_device_name()
    if name not in PEAK or model.name == "transformer":
        return None
    bandwidth, speed = PEAK[name]
    T, V, H = dimensions.length, dimensions.target_vocab, model.hidden
    gates = 4 if model.name == "lstm" else 1
    inputs = 3 if dimensions.source_vocab else 2  # word, state and context, H of each
    rows = sentences * T
    layer, output = 2 * rows * gates * H * inputs * H, 2 * rows * V * H
    # Forward, its gradient by the inputs and by the weights; the output layer is made twice. Sampling: forward alone.
    operations = 3 * layer + 4 * output + sampled * (layer + output)
    # Adam: gradient, two moments and the parameter read, three of them written; the gradient written, and read for its
    # norm. The gradient of the scores: written, and read twice. Sampling: the output layer and the scores, each word.
    moved = 4 * (9 * parameters + 3 * rows * V + sampled * T * (V * H + 2 * sentences * V))
    return Bound(launches, 1000 * moved / bandwidth, 1000 * operations / speed)


def kernel_count(step: Step, batch: Batch) -> int:
    """Programs of one captured step."""
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        step(batch, 0)
        torch.cuda.synchronize()
    return len(profiled.events())


def launch_ms() -> float:
    """One operation after another on one number, captured: what a launch takes at the least."""
    number, graph, times = torch.zeros(1, device="cuda"), torch.cuda.CUDAGraph(), 1000
    number.add_(1)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        for _ in range(times):
            number.add_(1)
    graph.replay()
    began, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    began.record()
    graph.replay()
    ended.record()
    torch.cuda.synchronize()
    return float(began.elapsed_time(ended)) / times
