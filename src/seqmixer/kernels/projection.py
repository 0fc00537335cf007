"""The output layer and the log-probability of known words as one function, which never holds all scores at once.

Scores of T steps over a large vocabulary are the largest thing in training: (B, T, V). Here they are made for some
rows at a time, used, and made again for the backward pass, as their own gradient. On a CPU, where arithmetic is dearer
than memory, they are kept for it if there is room for all of them. Words are drawn from scores by `draw`.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqmixer.kernels.switch import in_triton

ROOM = 2**26  # scores held at a time: 256 MiB of float32
FEW = 256  # rows: the program for the few of a search is not used for more


def linear_log_prob(h: Tensor, weight: Tensor, bias: Tensor, words: Tensor, room: int = ROOM) -> Tensor:
    """log softmax(W h + b) at these words (Eqs. 4-5), in float32.  (R, H), (V, H), (V,), (R,) -> (R,)

    In an autocast region the products are taken in its type, and the rest in float32 all the same.
    """
    return _LinearLogProb.apply(h, weight, bias, words, room)


class _LinearLogProb(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, bias: Tensor, words: Tensor, room: int) -> Tensor:
        device = h.device.type
        ctx.types = h.dtype, weight.dtype, bias.dtype
        if torch.is_autocast_enabled(device):
            short = torch.get_autocast_dtype(device)
            h, weight, bias = h.to(short), weight.to(short), bias.to(short)
        with torch.autocast(device, enabled=False):
            ctx.rows = max(1, room // len(weight))  # at a time
            log_p, normaliser, o = _log_prob(h, weight, bias, words, ctx.rows)
        ctx.save_for_backward(h, weight, bias, words, normaliser, o)
        return log_p

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        h, weight, bias, words, normaliser, o = ctx.saved_tensors
        _, of_weights, of_biases, *_ = ctx.needs_input_grad  # frozen weights need none
        dh, dweight, dbias = torch.empty_like(h), torch.zeros_like(weight), torch.zeros_like(bias)
        grad = grad.contiguous()
        with torch.autocast(h.device.type, enabled=False):
            for first in range(0, len(h), ctx.rows):
                rows = slice(first, first + ctx.rows)
                do = _gradient(h[rows], weight, bias, words[rows], normaliser[rows], grad[rows], o)  # (rows, V)
                torch.mm(do, weight, out=dh[rows])
                if of_weights:
                    dweight.addmm_(do.t(), h[rows])
                if of_biases:
                    dbias += do.sum(0)
        of_h, of_weight, of_bias = ctx.types
        return dh.to(of_h), dweight.to(of_weight), dbias.to(of_bias), None, None


def _log_prob(
    h: Tensor, weight: Tensor, bias: Tensor, words: Tensor, rows: int
) -> tuple[Tensor, Tensor, Tensor | None]:
    """-> (R,) log p, (R,) the logarithm of the normaliser, (R, V) the scores if they are kept"""
    if in_triton(h):
        from seqmixer.kernels import triton_output

        return *triton_output.log_prob(h, weight, bias, words), None
    parts = []
    for some, word in zip(h.split(rows), words.split(rows), strict=True):
        logits = torch.addmm(bias, some, weight.t())  # (rows, V)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        normaliser = logits.logsumexp(-1)
        parts.append((logits.gather(-1, word.unsqueeze(-1)).squeeze(-1) - normaliser, normaliser))
    log_p, normaliser = (torch.cat(each) for each in zip(*parts, strict=True))
    return log_p, normaliser, logits if h.device.type == "cpu" and len(parts) == 1 else None


def _gradient(
    h: Tensor, weight: Tensor, bias: Tensor, words: Tensor, normaliser: Tensor, grad: Tensor, o: Tensor | None
) -> Tensor:
    """d log p_w / d o = 1(w) - p, times grad.  -> (R, V)"""
    if in_triton(h):
        from seqmixer.kernels import triton_output

        return triton_output.gradient(h, weight, bias, words, normaliser, grad)
    normaliser = normaliser.unsqueeze(-1)
    log_p = torch.addmm(bias, h, weight.t()).sub_(normaliser) if o is None else (o - normaliser).to(h.dtype)  # (R, V)
    p = log_p.exp_().mul_(-grad.unsqueeze(-1))
    return p.scatter_add_(-1, words.unsqueeze(-1), grad.unsqueeze(-1).to(p.dtype))


def linear(h: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """W h + b without a gradient, for the few rows of a search.  (R, H) -> (R, V)"""
    if in_triton(h) and len(h) <= FEW:
        from seqmixer.kernels import triton_output

        return triton_output.scores(h, weight, bias)
    return torch.nn.functional.linear(h, weight, bias)


def draw(logits: Tensor, u: Tensor) -> Tensor:
    """The word at which the cumulated probabilities pass u.  (B, V), (B,) in [0, 1) -> (B,)

    Cumulated in double precision, so that rare words of a large vocabulary keep their share.
    """
    if in_triton(logits):
        from seqmixer.kernels import triton_drawing

        return triton_drawing.draw(logits, u)
    cumulated = logits.softmax(-1, dtype=torch.double).cumsum(-1)  # (B, V)
    level = u.double().unsqueeze(-1) * cumulated[:, -1:]  # (B, 1)
    return torch.searchsorted(cumulated, level, right=True).squeeze(-1).clamp(max=logits.shape[-1] - 1)
