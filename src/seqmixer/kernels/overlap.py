"""Work on a second CUDA stream, beside the main one of a captured program."""

from collections.abc import Callable

import torch
from torch import Tensor


def overlapped(run: Callable[[], Tensor], needs: Tensor) -> Callable[[], Tensor]:
    """`run`, begun now if that can be; the function that is returned gives its result.

    In a program that is being captured for a CUDA device, `run` becomes a branch of its own, beside what comes next on
    the main one. Anywhere else it is run when its result is asked for.

    Args:
        needs: what `run` reads; the branch begins where this is known.
    """
    if not (needs.is_cuda and torch.cuda.is_current_stream_capturing()):
        return run
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    side.wait_stream(main)
    with torch.cuda.stream(side):
        result = run()

    def collect() -> Tensor:
        main.wait_stream(side)
        return result

    return collect
