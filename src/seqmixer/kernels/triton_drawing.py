"""Drawing words in two programs: sums of tiles of the vocabulary, then a search in the tile that the level falls into."""

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 512  # words


@triton.jit
def _tiles(logits, most, total, V, stride, tiles, TILE: tl.constexpr):
    row, tile = tl.program_id(0).to(tl.int64), tl.program_id(1)
    words = tile * TILE + tl.arange(0, TILE)
    o = tl.load(logits + row * stride + words, mask=words < V, other=float("-inf")).to(tl.float32)
    highest = tl.max(o, 0)
    tl.store(most + row * tiles + tile, highest)
    # A tile may hold nothing but words of probability 0.
    p = tl.where(o == float("-inf"), 0.0, tl.exp(o - highest))
    tl.store(total + row * tiles + tile, tl.sum(p.to(tl.float64), 0))


@triton.jit
def _draw(logits, u, most, total, drawn, V, stride, tiles, TILE: tl.constexpr, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    tile = tl.arange(0, WIDTH)
    there = tile < tiles
    m = tl.load(most + row * tiles + tile, mask=there, other=float("-inf"))
    highest = tl.max(m, 0)
    weight = tl.where(m == float("-inf"), 0.0, tl.exp(m - highest)).to(tl.float64)
    share = weight * tl.load(total + row * tiles + tile, mask=there, other=0.0)
    cumulated = tl.cumsum(share, 0)
    level = tl.load(u + row) * tl.sum(share, 0)
    # Sums are rounded, here and in the tile: a level behind them all is that of the last that is not 0.
    passed = tl.sum(((cumulated <= level) & there).to(tl.int32), 0)
    chosen = tl.minimum(passed, tl.max(tl.where(share > 0, tile, 0), 0))
    before = tl.sum(tl.where(tile < chosen, share, 0.0), 0)
    place = tl.arange(0, TILE)
    words = chosen * TILE + place
    o = tl.load(logits + row * stride + words, mask=words < V, other=float("-inf")).to(tl.float32)
    p = tl.where(o == float("-inf"), 0.0, tl.exp(o - highest)).to(tl.float64)
    below = tl.sum(((before + tl.cumsum(p, 0) <= level) & (words < V)).to(tl.int32), 0)
    last = tl.max(tl.where(p > 0, place, 0), 0)
    tl.store(drawn + row, (chosen * TILE + tl.minimum(below, last)).to(tl.int64))


def draw(logits: Tensor, u: Tensor) -> Tensor:
    """The word at which the cumulated probabilities pass u.  (B, V), (B,) -> (B,)"""
    B, V = logits.shape
    tiles = triton.cdiv(V, TILE)
    most = torch.empty(B, tiles, device=logits.device)
    total = torch.empty(B, tiles, dtype=torch.double, device=logits.device)
    drawn = torch.empty(B, dtype=torch.long, device=logits.device)
    _tiles[(B, tiles)](logits, most, total, V, logits.stride(0), tiles, TILE)
    _draw[(B,)](
        logits, u, most, total, drawn, V, logits.stride(0), tiles, TILE, triton.next_power_of_2(tiles)
    )  # fmt: skip
    return drawn
