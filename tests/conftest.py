import os

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported, and for the processes that tests start

import sys

import pytest
import torch

from seqmixer.cli import main


@pytest.fixture(autouse=True)
def one_thread_and_a_seed():
    """Small tensors get 100 times slower when threads fight; every test draws the same numbers each time."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False  # torch's default, which a training step may have changed


@pytest.fixture(autouse=True)
def forget_modules_of_the_test(tmp_path_factory):
    """A module that a test wrote and imported is not the next test's module of that name."""
    yield
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(str(tmp_path_factory.getbasetemp())):
            del sys.modules[name]


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
