import numpy
import pytest
import torch

from seqmixer.errors import OutOfMemory, within_memory

HUGE = 10**14  # of anything: more than the addresses of a process


def on_an_accelerator():
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8 GiB.")


@pytest.mark.parametrize(
    ("allocate", "asked"),
    [
        (lambda: torch.empty(HUGE), r" \(400000000000000 bytes were asked for\)"),
        (lambda: torch.empty(2**62), ""),
        (lambda: numpy.empty(HUGE), r" \(728\. TiB were asked for\)"),
        (lambda: bytearray(10 * HUGE), ""),
        (on_an_accelerator, r" \(2\.00 GiB were asked for\)"),
    ],
    ids=["torch", "torch, more than can be counted", "numpy", "python", "accelerator"],
)
def test_every_way_of_running_out_is_one_error(allocate, asked):
    with pytest.raises(OutOfMemory, match=rf"^out of memory{asked}; take a smaller model [^\n]*$"):
        within_memory()(allocate)()


def test_other_errors_stay_what_they_are():
    with pytest.raises(RuntimeError, match="must match the size"), within_memory():
        torch.ones(2) + torch.ones(3)
