import os

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported, and for the processes that tests start

import os
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from seqmixer.cli import main

settings.register_profile("same", derandomize=True, deadline=None)  # the machine may be busy
settings.load_profile("same")


@pytest.fixture(autouse=True)
def one_thread_and_a_seed():
    """Small tensors get 100 times slower when threads fight; every test draws the same numbers each time."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False  # torch's default, which a training step may have changed


@pytest.fixture(autouse=True)
def forget_modules_of_the_test(tmp_path_factory):
    """A module that a test wrote and imported is not the next test's module of that name."""
    before = list(sys.path)
    yield
    sys.path[:] = before
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(str(tmp_path_factory.getbasetemp())):
            del sys.modules[name]


@pytest.fixture
def real_data():
    """real_data(name): the folder of a real data set; where it is not, the test is skipped."""

    def folder(name):
        if not os.environ.get("SEQMIXER_DATA"):
            pytest.skip("SEQMIXER_DATA, the folder of the real data, is not set")
        path = Path(os.environ["SEQMIXER_DATA"]) / name
        if not path.is_dir():
            pytest.skip(f"SEQMIXER_DATA has no {name}")
        return path

    return folder


@pytest.fixture
def run(monkeypatch, capsys):
    """Call the command line as a person would. -> exit code, standard output, standard error"""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["seqmixer", *map(str, arguments)])
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call
