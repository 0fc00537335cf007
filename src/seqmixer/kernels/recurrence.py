"""A recurrent layer over T steps as one differentiable function.

h_{t+1} = phi(x_t, h_t, c_t), with c_t attended to before each step (Eqs. 1, 3 and 12-14)

Autograd would keep a dozen nodes a step and add up the gradient of every weight T times. Written out, the backward pass
is a loop over the few things that really depend on the step after; the gradients of weights, keys and values are one
product over all steps, after it.
"""

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqmixer.kernels import steps
from seqmixer.kernels.switch import in_triton


@dataclass(frozen=True)
class Attention:
    """What a layer attends to. The query is h_t; or x_t + Q [h_t; m_t], as released."""

    z: Tensor  # (B, N, H) keys
    values: Tensor  # (B, N, H)
    real: Tensor  # (B, N) true on words
    x: Tensor | None = None  # (T, B, H)
    Q: Tensor | None = None  # (H, H), or (H, 2 H) where there is an m


def recur(
    gates: Tensor, state: tuple[Tensor, ...], U: Tensor, C: Tensor | None = None, attention: Attention | None = None
) -> tuple[tuple[Tensor, ...], Tensor | None]:
    """Run an Elman layer, whose state is (h,), or an LSTM layer, whose state is (h, m), over T steps.

    Args:
        gates: (T, B, G H) what the words and the biases bring to the gates; G = 1, or 4 in the order i f g o.
        state: (B, H) each, the first.
        U: (G H, H) from the hidden state to the gates.
        C: (G H, H) from the context to the gates, with `attention`.

    Returns:
        The states after each step, (T, B, H) each (no gradient passes through m), and the contexts (T, B, H).
    """
    h, m = (*(part.to(U.dtype) for part in state), None)[:2]
    a = attention
    parts = (a.z.contiguous(), a.values.contiguous(), a.real.contiguous(), a.x, a.Q) if a else (None,) * 5
    with torch.autocast(gates.device.type, enabled=False):  # states add up over the steps: never in a short type
        hs, ms, contexts = _Recurrence.apply(gates.to(U.dtype).contiguous(), h, m, U, C, *parts)
    return (hs,) if ms is None else (hs, ms), contexts


def _steps(tensor: Tensor) -> ModuleType:
    if in_triton(tensor):
        from seqmixer.kernels import triton_steps

        return triton_steps
    return steps


class _Recurrence(torch.autograd.Function):
    """Optional tensors are None together: m and what is made of it; C, z, values, real; x and Q."""

    @staticmethod
    def forward(
        ctx: Any, gates: Any, h: Any, m: Any, U: Any, C: Any, z: Any, values: Any, real: Any, x: Any, Q: Any
    ) -> Any:
        step = _steps(gates)
        T, (B, H) = len(gates), h.shape
        hs = gates.new_empty(T, B, H)  # after each step
        ms = None if m is None else gates.new_empty(T, B, H)
        activations = torch.empty_like(gates)  # (T, B, G H)
        contexts: Any = None
        alphas: Any = None
        queries: Any = None
        if z is not None:
            contexts, alphas = gates.new_empty(T, B, H), gates.new_empty(T, B, z.shape[1])
            queries = None if Q is None else x.clone(memory_format=torch.contiguous_format)  # (T, B, H)
        ctx.save_for_backward(h, m, U, C, z, values, Q, hs, ms, activations, contexts, alphas, queries)
        for t in range(T):
            if z is not None:
                query = h
                if Q is not None:
                    query = queries[t]
                    step.query(h, m, Q, query)
                step.attend(query, z, values, real, alphas[t], contexts[t])
            step.cell(gates[t], h, m, _at(contexts, t), U, C, activations[t], hs[t], _at(ms, t))
            h, m = hs[t], _at(ms, t)
        if ms is not None:
            ctx.mark_non_differentiable(ms)
        return hs, ms, contexts

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_h: Tensor, grad_m: Any, grad_c: Any) -> Any:
        h, m, U, C, z, values, Q, hs, ms, activations, contexts, alphas, queries = ctx.saved_tensors
        step = _steps(hs)
        hs, ms = _from(h, hs), _from(m, ms)  # (T + 1, B, H): before the first step, then after each
        grad_h = grad_h.contiguous()  # (T, B, H)
        dh: Any = torch.zeros_like(hs)  # without what grad_h brings
        dm: Any = None if ms is None else torch.zeros_like(ms)
        dgates = torch.empty_like(activations)
        dC: Any = None  # this and the next stay None where nothing is attended to
        dc: Any = None
        dz: Any = None
        dvalues: Any = None
        dscores: Any = None
        dq: Any = None
        dQ: Any = None
        if z is not None:
            dc = grad_c.clone(memory_format=torch.contiguous_format)
            dscores = torch.empty_like(alphas)
            dq = dh if Q is None else torch.zeros_like(grad_h)  # where the query is h_t, its gradient is h_t's
        for t in reversed(range(len(grad_h))):
            step.cell_backward(
                grad_h[t], dh[t + 1], _at(dm, t + 1), activations[t], _at(ms, t), _at(ms, t + 1), U, C,
                dgates[t], _at(dc, t), dh[t], _at(dm, t),
            )  # fmt: skip
            if z is not None:
                step.attend_backward(dc[t], contexts[t], alphas[t], z, values, dscores[t], dq[t])
                if Q is not None:
                    step.query_backward(dq[t], Q, dh[t], _at(dm, t))
        before = hs[:-1].flatten(0, 1)  # (T B, H)
        flat = dgates.flatten(0, 1)  # (T B, G H)
        dU = flat.t() @ before
        if z is not None:
            dC = flat.t() @ contexts.flatten(0, 1)
            queries = hs[:-1] if Q is None else queries
            dz = dscores.permute(1, 2, 0) @ queries.transpose(0, 1)  # (B, N, T) x (B, T, H) -> (B, N, H)
            dvalues = alphas.permute(1, 2, 0) @ dc.transpose(0, 1)
        if Q is not None:
            state = before if ms is None else torch.cat([before, ms[:-1].flatten(0, 1)], -1)  # (T B, 2 H)
            dQ = dq.flatten(0, 1).t() @ state
        dx = None if Q is None else dq
        return dgates, dh[0], _at(dm, 0), dU, dC, dz, dvalues, None, dx, dQ


def _from(first: Any, after: Any) -> Any:
    """All states in one.  (B, H), (T, B, H) -> (T + 1, B, H)"""
    return None if first is None else torch.cat([first.unsqueeze(0), after])


def _at(tensor: Any, t: int) -> Any:
    return None if tensor is None else tensor[t]
