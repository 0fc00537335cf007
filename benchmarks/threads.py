"""Whether the number of CPU threads that a run chooses by itself is a good one, also where others use the cores.

python benchmarks/threads.py --busy 2
"""

import argparse
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import torch

BUSY = "import os; parent = os.getppid()\nwhile os.getppid() == parent: sum(range(10**6))"
HOPELESS = 3  # times the shortest: longer, a command is stopped
CONFIG = """
data.task = "toy-translation"
model = {{ name = "lstm", hidden = {hidden} }}
algorithm.name = "mixer"
algorithm.xent_epochs = 1
training = {{ epochs = 2, device = "cpu"{threads} }}
reward.name = "bleu"
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--busy", type=int, default=0, help="other processes, each of which takes all of a core")
    parser.add_argument("--hidden", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--repeat", type=int, default=3)
    asked = parser.parse_args()
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    ways = {str(n): f", threads = {n}" for n in sorted({1, torch.get_num_threads()})} | {"default": ""}
    loops = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(asked.busy)]
    try:
        for hidden in asked.hidden:
            seconds: dict[str, list[float]] = {way: [] for way in ways}
            for _ in range(asked.repeat):  # in turn, so that a disturbance meets all
                for way, threads in ways.items():
                    text = CONFIG.format(hidden=hidden, threads=threads)
                    limit = HOPELESS * min((taken for each in seconds.values() for taken in each), default=math.inf)
                    seconds[way].append(run(text, environment, limit))
            found = {way: median(each) for way, each in seconds.items()}
            best = min(taken for way, taken in found.items() if way != "default")
            shown = ", ".join(f"{way} {taken:.1f} s" for way, taken in found.items())
            print(
                f"hidden {hidden}, {asked.busy} busy: {shown}; default / best {found['default'] / best:.2f}", flush=True
            )
    finally:
        for loop in loops:
            loop.kill()


def run(text: str, environment: dict[str, str], limit: float) -> float:
    """Seconds of a whole command; infinite where it takes longer than the limit."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.toml"
        path.write_text(text)
        began = time.perf_counter()
        command = [sys.executable, "-m", "seqmixer", "train", str(path), "--out", folder]
        try:
            subprocess.run(command, env=environment, check=True, capture_output=True, timeout=min(limit, 1e6))
        except subprocess.TimeoutExpired:
            return math.inf
        return time.perf_counter() - began


if __name__ == "__main__":
    main()
