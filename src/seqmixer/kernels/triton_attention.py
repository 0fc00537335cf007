"""The attention of one step, forward and backward: a program for each sentence."""

import triton
import triton.language as tl
from torch import Tensor

CHUNK = 32  # source words that a program holds at a time: the fastest of those tried on an H200


@triton.jit
def _attend(
    query, z, values, real, alpha, c, query_stride, N, H: tl.constexpr, WIDTH: tl.constexpr, CHUNK: tl.constexpr
):
    """One sentence: the softmax is taken as the words come, as flash attention does."""
    row = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, WIDTH)  # hidden units, filled up to a power of two
    unit = d < H
    q = tl.load(query + row * query_stride + d, mask=unit, other=0.0)
    most = tl.full([1], float("-inf"), tl.float32)
    total = tl.zeros([1], tl.float32)
    mean = tl.zeros([WIDTH], tl.float32)
    for first in range(0, N, CHUNK):
        j = first + tl.arange(0, CHUNK)
        word = tl.load(real + row * N + j, mask=j < N, other=0).to(tl.int1)
        place = (row * N + j[:, None]) * H + d[None, :]
        inside = (j < N)[:, None] & unit[None, :]
        scores = tl.sum(tl.load(z + place, mask=inside, other=0.0) * q[None, :], 1)
        scores = tl.where(word, scores, float("-inf"))
        tl.store(alpha + row * N + j, scores, mask=j < N)
        higher = tl.maximum(most, tl.max(scores, 0))
        # Before the first word all is -inf, and -inf - -inf is no number.
        old = tl.where(most == float("-inf"), 0.0, tl.exp(most - higher))
        p = tl.where(word, tl.exp(scores - higher), 0.0)
        total = total * old + tl.sum(p, 0)
        mean = mean * old + tl.sum(p[:, None] * tl.load(values + place, mask=inside, other=0.0), 0)
        most = higher
    tl.store(c + row * H + d, mean / total, mask=unit)
    tl.debug_barrier()  # the scores may be read by other threads than those that wrote them
    for first in range(0, N, CHUNK):
        j = first + tl.arange(0, CHUNK)
        scores = tl.load(alpha + row * N + j, mask=j < N, other=float("-inf"))
        tl.store(alpha + row * N + j, tl.exp(scores - most) / total, mask=j < N)


@triton.jit
def _attend_backward(
    dc, c, alpha, z, values, dscores, dq, N, H: tl.constexpr, WIDTH: tl.constexpr, CHUNK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, WIDTH)
    unit = d < H
    dcontext = tl.load(dc + row * H + d, mask=unit, other=0.0)
    mean = tl.sum(dcontext * tl.load(c + row * H + d, mask=unit, other=0.0), 0)
    total = tl.load(dq + row * H + d, mask=unit, other=0.0)
    for first in range(0, N, CHUNK):
        j = first + tl.arange(0, CHUNK)
        place = (row * N + j[:, None]) * H + d[None, :]
        inside = (j < N)[:, None] & unit[None, :]
        dalpha = tl.sum(tl.load(values + place, mask=inside, other=0.0) * dcontext[None, :], 1)
        ds = tl.load(alpha + row * N + j, mask=j < N, other=0.0) * (dalpha - mean)
        tl.store(dscores + row * N + j, ds, mask=j < N)
        total += tl.sum(ds[:, None] * tl.load(z + place, mask=inside, other=0.0), 0)
    tl.store(dq + row * H + d, total, mask=unit)


def attend(query: Tensor, z: Tensor, values: Tensor, real: Tensor, alpha: Tensor, c: Tensor) -> None:
    """Eqs. 13-14 for one step: writes alpha (B, N) and c (B, H)."""
    B, N, H = z.shape
    _attend[(B,)](query, z, values, real, alpha, c, query.stride(0), N, H, triton.next_power_of_2(H), CHUNK)


def attend_backward(
    dc: Tensor, c: Tensor, alpha: Tensor, z: Tensor, values: Tensor, dscores: Tensor, dq: Tensor
) -> None:
    """Writes the gradient of the scores (B, N), and adds that of the query to dq (B, H)."""
    B, N, H = z.shape
    _attend_backward[(B,)](dc, c, alpha, z, values, dscores, dq, N, H, triton.next_power_of_2(H), CHUNK)
