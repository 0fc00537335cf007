"""Drawing words from softmax(logits) by given uniform numbers."""

import torch
from torch import Tensor

from seqmixer.kernels.switch import in_triton


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
