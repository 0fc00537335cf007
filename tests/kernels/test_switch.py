import pytest
import torch

from seqmixer.kernels import fused, in_triton, plain
from seqmixer.kernels.switch import dot_precision


def test_programs_are_fused_but_inside_plain():
    assert fused()
    with plain():
        assert not fused()
        with plain():
            assert not fused()
        assert not fused()
    assert fused()


def test_an_error_inside_plain_leaves_it():
    with pytest.raises(ZeroDivisionError), plain():
        raise ZeroDivisionError
    assert fused()


def test_triton_is_not_for_the_cpu():
    assert not in_triton(torch.zeros(1))


@pytest.mark.parametrize(("allowed", "precision"), [(False, "ieee"), (True, "tf32")])
def test_triton_multiplies_as_torch_is_told_to(allowed, precision):
    torch.backends.cuda.matmul.allow_tf32 = allowed

    assert dot_precision() == precision
