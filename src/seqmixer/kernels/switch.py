"""Whether the fused programs are used."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

_fused = ContextVar("_fused", default=True)


def fused() -> bool:
    """False inside `plain()`."""
    return _fused.get()


@contextmanager
def plain() -> Iterator[None]:
    """Plain torch for a while: every operation one of autograd's own, on every device."""
    token = _fused.set(False)
    try:
        yield
    finally:
        _fused.reset(token)


def in_triton(tensor: torch.Tensor) -> bool:
    """Whether this tensor's programs are the Triton ones."""
    return fused() and tensor.is_cuda


def set_matmul_precision(precision: str) -> None:
    """Multiply float32 matrices on a CUDA device in full precision from here on, or as tf32."""
    torch.backends.cuda.matmul.allow_tf32 = precision != "float32"


def dot_precision() -> str:
    """How Triton multiplies float32 matrices: as torch is told to."""
    return "ieee" if torch.backends.cuda.matmul.allow_tf32 is False else "tf32"
