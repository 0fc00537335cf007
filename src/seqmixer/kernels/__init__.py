"""The inner programs of training and decoding, each twice: in plain torch, and fused in Triton for CUDA.

A model says what is computed, with tensors of any device; here it is decided how. Both ways give the same numbers to
rounding. `plain()` switches the second one off, to measure it and to look for mistakes.
"""

from seqmixer.kernels.capture import Programs, overlapped, run_anew, warming
from seqmixer.kernels.projection import ROOM, draw, linear, linear_log_prob
from seqmixer.kernels.recurrence import Attention, recur
from seqmixer.kernels.switch import fused, in_triton, plain, set_matmul_precision

__all__ = [
    "ROOM",
    "Attention",
    "Programs",
    "draw",
    "fused",
    "in_triton",
    "linear",
    "linear_log_prob",
    "overlapped",
    "plain",
    "recur",
    "run_anew",
    "set_matmul_precision",
    "warming",
]
