import os

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported, and for the processes that tests start

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread_and_a_seed():
    """Small tensors get 100 times slower when threads fight; every test draws the same numbers each time."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
