"""One step of a recurrent layer, forward and backward, in plain torch. Results are written into tensors of the caller.

`triton_steps` has the same functions. What only an LSTM has (m, dm) or only attention (c, C, dc) may be None.
"""

from typing import Any

import torch
from torch import Tensor


def query(h: Tensor, m: Any, Q: Tensor, q: Tensor) -> None:
    """The released query: adds Q [h; m] to q (B, H), which holds x."""
    for part, columns in zip((h, m), Q.split(h.shape[1], 1), strict=False):
        q.addmm_(part, columns.t())


def query_backward(dq: Tensor, Q: Tensor, dh: Tensor, dm: Any) -> None:
    """Adds the gradients of the state that made the query to dh and dm (B, H)."""
    for part, columns in zip((dh, dm), Q.split(dh.shape[1], 1), strict=False):
        part.addmm_(dq, columns)


def attend(query: Tensor, z: Tensor, values: Tensor, real: Tensor, alpha: Tensor, c: Tensor) -> None:
    """Eqs. 13-14 for one step: writes alpha (B, N) and c (B, H)."""
    scores = torch.bmm(z, query.unsqueeze(-1)).squeeze(-1)  # (B, N, H) x (B, H, 1) -> (B, N)
    torch.softmax(scores.masked_fill_(~real, -torch.inf), -1, out=alpha)
    torch.bmm(alpha.unsqueeze(1), values, out=c.unsqueeze(1))  # (B, 1, N) x (B, N, H) -> (B, 1, H)


def attend_backward(
    dc: Tensor, c: Tensor, alpha: Tensor, z: Tensor, values: Tensor, dscores: Tensor, dq: Tensor
) -> None:
    """Writes the gradient of the scores (B, N), and adds that of the query to dq (B, H)."""
    dalpha = torch.bmm(values, dc.unsqueeze(-1)).squeeze(-1)  # (B, N)
    mean = (c * dc).sum(-1, keepdim=True)  # sum_j alpha_j dalpha_j, since c = sum_j alpha_j v_j: (B, 1)
    torch.mul(alpha, dalpha - mean, out=dscores)
    dq += torch.bmm(dscores.unsqueeze(1), z).squeeze(1)


def cell(
    gates: Tensor, h: Tensor, m: Any, c: Any, U: Tensor, C: Any, activations: Tensor, new_h: Tensor, new_m: Any
) -> None:
    """Eq. 3 without m, an LSTM with it: writes the activations of the gates and the state after the step."""
    torch.addmm(gates, h, U.t(), out=activations)
    if c is not None:
        activations.addmm_(c, C.t())
    if m is None:
        torch.sigmoid(activations, out=new_h)
        activations.copy_(new_h)
        return
    i, f, g, o = activations.chunk(4, -1)
    i.sigmoid_()
    f.sigmoid_()
    g.tanh_()
    o.sigmoid_()
    torch.addcmul(f * m, i, g, out=new_m)
    torch.mul(o, new_m.tanh(), out=new_h)


def cell_backward(
    grad_h: Tensor,
    dh_new: Tensor,
    dm_new: Any,
    activations: Tensor,
    m: Any,
    new_m: Any,
    U: Tensor,
    C: Any,
    dgates: Tensor,
    dc: Any,
    dh: Tensor,
    dm: Any,
) -> None:
    """Writes the gradients of the gates and of the state before the step; adds that of the context to dc."""
    total = grad_h + dh_new  # from the output of this step, and from the step after: (B, H)
    if m is None:
        torch.mul(total, activations * (1 - activations), out=dgates)
    else:
        i, f, g, o = activations.chunk(4, -1)
        di, df, dg, do = dgates.chunk(4, -1)
        tanh = new_m.tanh()
        memory = torch.addcmul(dm_new, total * o, 1 - tanh * tanh)
        torch.mul(memory * g, i * (1 - i), out=di)
        torch.mul(memory * m, f * (1 - f), out=df)
        torch.mul(memory * i, 1 - g * g, out=dg)
        torch.mul(total * tanh, o * (1 - o), out=do)
        torch.mul(memory, f, out=dm)
    torch.mm(dgates, U, out=dh)
    if dc is not None:
        dc.addmm_(dgates, C)
