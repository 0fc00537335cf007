import torch

from seqmixer.kernels import overlapped


def test_on_the_cpu_what_nobody_waits_for_is_run_when_it_is_asked_for():
    calls = []

    collect = overlapped(lambda: calls.append("run") or torch.ones(2), torch.zeros(2))

    assert calls == []
    assert collect().tolist() == [1.0, 1.0]
    assert calls == ["run"]
