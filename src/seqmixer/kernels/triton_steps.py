"""One step of a recurrent layer, forward and backward, in few Triton programs; `steps` is the same in plain torch.

A step of a small layer is bound by the number of programs it launches, not by arithmetic: everything between two
barriers of the computation is one program. The rows of a batch are independent, and so are slices of the hidden state:
a program owns some rows and, of the gates, one slice.
"""

import triton
import triton.language as tl
from torch import Tensor

from seqmixer.kernels.switch import dot_precision
from seqmixer.kernels.triton_attention import attend, attend_backward

# The sizes of a program are the fastest of those tried on an H200 with the paper's models.
SLICE = 32  # hidden units that a program of the cell owns
DEPTH = 64  # of its products, at a time

__all__ = ["attend", "attend_backward", "cell", "cell_backward", "query", "query_backward"]


@triton.jit
def _tanh(a):
    return 2 * tl.sigmoid(2 * a) - 1


@triton.jit
def _product(
    total, a, a_stride, W, W_stride, rows, there, units, H: tl.constexpr, DEPTH: tl.constexpr, PRECISION: tl.constexpr
):
    """total + a W^T for some rows of a and some rows (units) of W."""
    for first in range(0, H, DEPTH):
        k = first + tl.arange(0, DEPTH)
        left = tl.load(a + rows[:, None] * a_stride + k[None, :], mask=there[:, None] & (k < H)[None, :], other=0.0)
        right = tl.load(W + units[None, :] * W_stride + k[:, None], mask=(k < H)[:, None], other=0.0)
        total = tl.dot(left, right, total, input_precision=PRECISION)
    return total


@triton.jit
def _cell(
    gates, h, m, c, U, C, activations, new_h, new_m, B, h_stride, m_stride, U_stride, C_stride,
    H: tl.constexpr, LSTM: tl.constexpr, ATTENTIVE: tl.constexpr,
    ROWS: tl.constexpr, SLICE: tl.constexpr, DEPTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    there = rows < B
    units = tl.program_id(1) * SLICE + tl.arange(0, SLICE)
    inside = there[:, None] & (units < H)[None, :]
    safe = tl.minimum(units, H - 1)
    G: tl.constexpr = 4 if LSTM else 1
    at = rows[:, None] * (G * H) + units[None, :]
    state = rows[:, None] * H + units[None, :]
    if LSTM:
        i = tl.load(gates + at, mask=inside, other=0.0)
        f = tl.load(gates + at + H, mask=inside, other=0.0)
        g = tl.load(gates + at + 2 * H, mask=inside, other=0.0)
        o = tl.load(gates + at + 3 * H, mask=inside, other=0.0)
        for first in range(0, H, DEPTH):
            k = first + tl.arange(0, DEPTH)
            deep = (k < H)[:, None]
            left = tl.load(h + rows[:, None] * h_stride + k[None, :], mask=there[:, None] & (k < H)[None, :], other=0.0)
            weight = U + safe[None, :] * U_stride + k[:, None]
            i = tl.dot(left, tl.load(weight, mask=deep, other=0.0), i, input_precision=PRECISION)
            f = tl.dot(left, tl.load(weight + H * U_stride, mask=deep, other=0.0), f, input_precision=PRECISION)
            g = tl.dot(left, tl.load(weight + 2 * H * U_stride, mask=deep, other=0.0), g, input_precision=PRECISION)
            o = tl.dot(left, tl.load(weight + 3 * H * U_stride, mask=deep, other=0.0), o, input_precision=PRECISION)
            if ATTENTIVE:
                left = tl.load(c + rows[:, None] * H + k[None, :], mask=there[:, None] & (k < H)[None, :], other=0.0)
                weight = C + safe[None, :] * C_stride + k[:, None]
                i = tl.dot(left, tl.load(weight, mask=deep, other=0.0), i, input_precision=PRECISION)
                f = tl.dot(left, tl.load(weight + H * C_stride, mask=deep, other=0.0), f, input_precision=PRECISION)
                g = tl.dot(left, tl.load(weight + 2 * H * C_stride, mask=deep, other=0.0), g, input_precision=PRECISION)
                o = tl.dot(left, tl.load(weight + 3 * H * C_stride, mask=deep, other=0.0), o, input_precision=PRECISION)
        i, f, g, o = tl.sigmoid(i), tl.sigmoid(f), _tanh(g), tl.sigmoid(o)
        tl.store(activations + at, i, mask=inside)
        tl.store(activations + at + H, f, mask=inside)
        tl.store(activations + at + 2 * H, g, mask=inside)
        tl.store(activations + at + 3 * H, o, mask=inside)
        memory = f * tl.load(m + rows[:, None] * m_stride + units[None, :], mask=inside, other=0.0) + i * g
        tl.store(new_m + state, memory, mask=inside)
        tl.store(new_h + state, o * _tanh(memory), mask=inside)
    else:
        total = tl.load(gates + at, mask=inside, other=0.0)
        total = _product(total, h, h_stride, U, U_stride, rows, there, safe, H, DEPTH, PRECISION)
        if ATTENTIVE:
            total = _product(total, c, H, C, C_stride, rows, there, safe, H, DEPTH, PRECISION)
        total = tl.sigmoid(total)
        tl.store(activations + at, total, mask=inside)
        tl.store(new_h + state, total, mask=inside)


@triton.jit
def _gates_backward(
    grad_h, dh_new, dm_new, activations, m, new_m, dgates, dm, size,
    H: tl.constexpr, LSTM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Unit by unit: from the gradient of the state after the step to those of its gates."""
    unit = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # of all rows
    there = unit < size
    d = tl.load(grad_h + unit, mask=there, other=0.0) + tl.load(dh_new + unit, mask=there, other=0.0)
    if LSTM:
        at = (unit // H) * (4 * H) + unit % H
        i = tl.load(activations + at, mask=there, other=0.0)
        f = tl.load(activations + at + H, mask=there, other=0.0)
        g = tl.load(activations + at + 2 * H, mask=there, other=0.0)
        o = tl.load(activations + at + 3 * H, mask=there, other=0.0)
        tanh = _tanh(tl.load(new_m + unit, mask=there, other=0.0))
        memory = tl.load(dm_new + unit, mask=there, other=0.0) + d * o * (1 - tanh * tanh)
        tl.store(dgates + at, memory * g * i * (1 - i), mask=there)
        tl.store(dgates + at + H, memory * tl.load(m + unit, mask=there, other=0.0) * f * (1 - f), mask=there)
        tl.store(dgates + at + 2 * H, memory * i * (1 - g * g), mask=there)
        tl.store(dgates + at + 3 * H, d * tanh * o * (1 - o), mask=there)
        tl.store(dm + unit, memory * f, mask=there)
    else:
        a = tl.load(activations + unit, mask=there, other=0.0)
        tl.store(dgates + unit, d * a * (1 - a), mask=there)


@triton.jit
def _state_backward(
    dgates, U, C, dh, dc, B, U_stride, C_stride, H: tl.constexpr, G: tl.constexpr, ADD: tl.constexpr,
    ROWS: tl.constexpr, SLICE: tl.constexpr, DEPTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dh = dgates U, or dh += with ADD, and dc += dgates C: the first programs own columns of U, the rest those of C."""
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    there = rows < B
    slices: tl.constexpr = (H + SLICE - 1) // SLICE
    context = tl.program_id(1) >= slices
    columns = (tl.program_id(1) % slices) * SLICE + tl.arange(0, SLICE)
    inside = there[:, None] & (columns < H)[None, :]
    W = C if context else U
    W_stride = C_stride if context else U_stride
    total = tl.zeros([ROWS, SLICE], tl.float32)
    for first in range(0, G * H, DEPTH):
        k = first + tl.arange(0, DEPTH)
        left = tl.load(
            dgates + rows[:, None] * (G * H) + k[None, :], mask=there[:, None] & (k < G * H)[None, :], other=0.0
        )
        right = tl.load(
            W + k[:, None] * W_stride + columns[None, :], mask=(k < G * H)[:, None] & (columns < H)[None, :], other=0.0
        )
        total = tl.dot(left, right, total, input_precision=PRECISION)
    state = rows[:, None] * H + columns[None, :]
    target = dc if context else dh
    if ADD or context:
        total += tl.load(target + state, mask=inside, other=0.0)
    tl.store(target + state, total, mask=inside)


@triton.jit
def _query(
    h, m, Q, q, B, h_stride, m_stride, H: tl.constexpr, LSTM: tl.constexpr,
    ROWS: tl.constexpr, SLICE: tl.constexpr, DEPTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    there = rows < B
    units = tl.program_id(1) * SLICE + tl.arange(0, SLICE)
    inside = there[:, None] & (units < H)[None, :]
    safe = tl.minimum(units, H - 1)
    at = rows[:, None] * H + units[None, :]
    Q_stride: tl.constexpr = 2 * H if LSTM else H
    total = tl.load(q + at, mask=inside, other=0.0)
    total = _product(total, h, h_stride, Q, Q_stride, rows, there, safe, H, DEPTH, PRECISION)
    if LSTM:
        total = _product(total, m, m_stride, Q + H, Q_stride, rows, there, safe, H, DEPTH, PRECISION)
    tl.store(q + at, total, mask=inside)


def query(h: Tensor, m: Tensor | None, Q: Tensor, q: Tensor) -> None:
    """The released query: adds Q [h; m] to q (B, H), which holds x."""
    B, H = h.shape
    rows = _rows(B)
    _query[(triton.cdiv(B, rows), triton.cdiv(H, SLICE))](
        h, h if m is None else m, Q, q, B, h.stride(0), 0 if m is None else m.stride(0), H, m is not None,
        rows, SLICE, DEPTH, dot_precision(),
    )  # fmt: skip


def query_backward(dq: Tensor, Q: Tensor, dh: Tensor, dm: Tensor | None) -> None:
    """Adds the gradients of the state that made the query to dh and dm (B, H)."""
    B, H = dq.shape
    rows = _rows(B)
    columns = triton.cdiv(H, SLICE) * (1 if dm is None else 2)
    _state_backward[(triton.cdiv(B, rows), columns)](
        dq, Q, Q if dm is None else Q[:, H:], dh, dh if dm is None else dm, B, Q.stride(0), Q.stride(0),
        H, 1, True, rows, SLICE, DEPTH, dot_precision(),
    )  # fmt: skip


def cell(
    gates: Tensor,
    h: Tensor,
    m: Tensor | None,
    c: Tensor | None,
    U: Tensor,
    C: Tensor | None,
    activations: Tensor,
    new_h: Tensor,
    new_m: Tensor | None,
) -> None:
    """Eq. 3 without m, an LSTM with it: writes the activations of the gates and the state after the step."""
    B, H = h.shape
    rows = _rows(B)
    _cell[(triton.cdiv(B, rows), triton.cdiv(H, SLICE))](
        gates, h, h if m is None else m, h if c is None else c, U, U if C is None else C,
        activations, new_h, new_h if new_m is None else new_m,
        B, h.stride(0), 0 if m is None else m.stride(0), U.stride(0), 0 if C is None else C.stride(0),
        H, m is not None, c is not None, rows, SLICE, DEPTH, dot_precision(),
    )  # fmt: skip


def cell_backward(
    grad_h: Tensor,
    dh_new: Tensor,
    dm_new: Tensor | None,
    activations: Tensor,
    m: Tensor | None,
    new_m: Tensor | None,
    U: Tensor,
    C: Tensor | None,
    dgates: Tensor,
    dc: Tensor | None,
    dh: Tensor,
    dm: Tensor | None,
) -> None:
    """Writes the gradients of the gates and of the state before the step; adds that of the context to dc."""
    B, H = grad_h.shape
    lstm, G, size = m is not None, dgates.shape[1] // H, grad_h.numel()
    _gates_backward[(triton.cdiv(size, 256),)](
        grad_h, dh_new, dh_new if dm_new is None else dm_new, activations, dh if m is None else m,
        dh if new_m is None else new_m, dgates, dh if dm is None else dm, size, H, lstm, 256,
    )  # fmt: skip
    rows = _rows(B)
    columns = triton.cdiv(H, SLICE) * (1 if dc is None else 2)
    _state_backward[(triton.cdiv(B, rows), columns)](
        dgates, U, U if C is None else C, dh, dh if dc is None else dc, B, U.stride(0),
        0 if C is None else C.stride(0), H, G, False, rows, SLICE, 2 * DEPTH, dot_precision(), num_stages=4,
    )  # fmt: skip


def _rows(B: int) -> int:
    """Rows of a program: few, so that there are many programs, but what a matrix unit takes."""
    return 16 if B <= 128 else 32
