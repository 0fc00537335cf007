"""The output layer, W h + b, tile by tile: each tile is used where it is made.

Scores over the vocabulary are many and needed briefly. For log-probabilities only a maximum and a sum of each tile are
kept; for the gradient the tile is made again, and turned into its own gradient before it is written.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from seqmixer.kernels.switch import dot_precision

ALIGNED = 64  # rows of what is written begin at multiples of so many numbers, as matrix units like it


@triton.jit
def _tile(
    h, weight, bias, R, V, H: tl.constexpr, h_stride,
    ROWS: tl.constexpr, WORDS: tl.constexpr, DEPTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Scores of some rows for some words."""
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    words = tl.program_id(1) * WORDS + tl.arange(0, WORDS)
    total = tl.zeros([ROWS, WORDS], tl.float32)
    for first in range(0, H, DEPTH):
        k = first + tl.arange(0, DEPTH)
        left = tl.load(
            h + rows[:, None] * h_stride + k[None, :], mask=(rows < R)[:, None] & (k < H)[None, :], other=0.0
        )
        right = tl.load(
            weight + words[None, :] * H + k[:, None], mask=(words < V)[None, :] & (k < H)[:, None], other=0.0
        )
        total = tl.dot(left, right, total, input_precision=PRECISION)
    return rows, words, total + tl.load(bias + words, mask=words < V, other=0.0).to(tl.float32)[None, :]


@triton.jit
def _scores(
    h, weight, bias, scores, R, V, H: tl.constexpr, h_stride, stride,
    ROWS: tl.constexpr, WORDS: tl.constexpr, DEPTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    rows, words, o = _tile(h, weight, bias, R, V, H, h_stride, ROWS, WORDS, DEPTH, PRECISION)
    tl.store(scores + rows[:, None] * stride + words[None, :], o, mask=(rows < R)[:, None] & (words < V)[None, :])


@triton.jit
def _log_sums(
    h, weight, bias, chosen, log_sums, of_chosen, R, V, H: tl.constexpr, h_stride, tiles,
    ROWS: tl.constexpr, WORDS: tl.constexpr, DEPTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    rows, words, o = _tile(h, weight, bias, R, V, H, h_stride, ROWS, WORDS, DEPTH, PRECISION)
    o = tl.where((words < V)[None, :], o, float("-inf"))
    most = tl.max(o, 1)
    log_sum = most + tl.log(tl.sum(tl.exp(o - most[:, None]), 1))
    tl.store(log_sums + rows * tiles + tl.program_id(1), log_sum, mask=rows < R)
    word = tl.load(chosen + rows, mask=rows < R, other=0)
    here = words[None, :] == word[:, None]
    mine = (word >= tl.program_id(1) * WORDS) & (word < (tl.program_id(1) + 1) * WORDS)
    tl.store(of_chosen + rows, tl.sum(tl.where(here, o, 0.0), 1), mask=(rows < R) & mine)


@triton.jit
def _gradient(
    h, weight, bias, chosen, normaliser, grad, gradient, R, V, H: tl.constexpr, h_stride, stride,
    ROWS: tl.constexpr, WORDS: tl.constexpr, DEPTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    rows, words, o = _tile(h, weight, bias, R, V, H, h_stride, ROWS, WORDS, DEPTH, PRECISION)
    there = rows < R
    p = tl.exp(o - tl.load(normaliser + rows, mask=there, other=0.0)[:, None])
    one = (words[None, :] == tl.load(chosen + rows, mask=there, other=0)[:, None]).to(tl.float32)
    d = (one - p) * tl.load(grad + rows, mask=there, other=0.0)[:, None]
    tl.store(gradient + rows[:, None] * stride + words[None, :], d, mask=there[:, None] & (words < V)[None, :])


def scores(h: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """W h + b of few rows.  (R, H) -> (R, V)"""
    R, V = len(h), len(weight)
    room = torch.empty(R, -(-V // ALIGNED) * ALIGNED, device=h.device)
    rows = 16 if R <= 16 else 32 if R <= 32 else 64
    grid = (triton.cdiv(R, rows), triton.cdiv(V, 64))
    _scores[grid](
        h, weight, bias, room, R, V, h.shape[1], h.stride(0), room.stride(0), rows, 64, 64, dot_precision()
    )  # fmt: skip
    return room[:, :V]


def log_prob(h: Tensor, weight: Tensor, bias: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
    """log p of one word a row, and the logarithm of the normaliser.  (R, H), (R,) -> (R,), (R,)"""
    R, V = len(h), len(weight)
    tiles = triton.cdiv(V, 128)
    log_sums, of_words = torch.empty(R, tiles, device=h.device), torch.empty(R, device=h.device)
    _log_sums[(triton.cdiv(R, 128), tiles)](
        h, weight, bias, words, log_sums, of_words, R, V, h.shape[1], h.stride(0), tiles, 128, 128, 32,
        dot_precision(), num_warps=8,
    )  # fmt: skip
    normaliser = log_sums.logsumexp(-1)
    return of_words - normaliser, normaliser


def gradient(h: Tensor, weight: Tensor, bias: Tensor, words: Tensor, normaliser: Tensor, grad: Tensor) -> Tensor:
    """The gradient of sum(grad * log p) by the scores, in the type of h.  -> (R, V)"""
    R, V = len(h), len(weight)
    room = h.new_empty(R, -(-V // ALIGNED) * ALIGNED)
    _gradient[(triton.cdiv(R, 128), triton.cdiv(V, 128))](
        h, weight, bias, words, normaliser, grad, room, R, V, h.shape[1], h.stride(0), room.stride(0), 128, 128, 32,
        dot_precision(), num_warps=8,
    )  # fmt: skip
    return room[:, :V]
