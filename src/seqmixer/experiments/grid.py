"""Many runs that make one table: tasks x methods x seeds, as in the paper's Fig. 5.

For each task and seed, N^XENT epochs of XENT make the base. Every method, XENT too, then trains for the same number of
epochs from the best model of that base, so that the methods differ in nothing but the algorithm of these epochs.
"""

import json
import multiprocessing
import os
import platform
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from seqmixer.config import Config
from seqmixer.errors import Interrupted
from seqmixer.experiments.oracle import best_score
from seqmixer.runs import train
from seqmixer.training import epochs, read_log

METHODS = ("xent", "dad", "e2e", "mixer")

Result = dict[str, Any]  # of one run: task, method, seed, score, valid, epoch, signature, seconds, run
Report = Callable[[Result, int], None]  # called after each run with what came of it and how many are left


@dataclass(frozen=True)
class Job:
    """One run of the grid."""

    task: str
    method: str  # "base" or one of METHODS
    seed: int
    config: Config


def base_and_methods(recipe: Path, seed: int, folder: Path) -> tuple[Job, list[Job]]:
    plain = Config.load(recipe)
    task, place = plain.data.task, f"{plain.data.task}/seed-{seed}"
    rate = plain.training.mixed_lr or plain.training.lr
    common = [f"seed={seed}", f"data.folder={json.dumps(plain.data.folder)}"]
    base = [*common, f"name={place}/base", "algorithm.name=xent", f"training.epochs={plain.algorithm.xent_epochs}"]
    start = json.dumps(str(folder / place / "base"))
    rest = [*common, "algorithm.xent_epochs=0", f"training.start={start}", f"training.lr={rate}"]
    methods = [
        Job(task, name, seed, Config.load(recipe, [*rest, f"name={place}/{name}", f"algorithm.name={name}"]))
        for name in METHODS
    ]
    return Job(task, "base", seed, Config.load(recipe, base)), methods


def run_job(job: Job, folder: Path) -> Result:
    """Train one run, or find it done, and say what came of it."""
    run = train(job.config, folder)
    scores = json.loads((run.folder / "scores.json").read_text())
    seconds = sum(sum(event["seconds"].values()) for event in epochs(read_log(run.folder)))
    return {
        "task": job.task,
        "method": job.method,
        "seed": job.seed,
        "score": scores["test"],
        "valid": scores["valid"],
        "epoch": scores["epoch"],
        "signature": scores["signature"],
        "seconds": round(seconds, 1),
        "run": job.config.name,
    }


def run_grid(recipes: Sequence[Path], seeds: Sequence[int], folder: Path, workers: int, report: Report) -> None:
    """Run every job, some at a time, bases before what starts from them, and leave folder/grid.json.

    Done runs are not run again.
    """
    began = time.perf_counter()
    waiting = dict(base_and_methods(recipe, seed, folder) for recipe in recipes for seed in seeds)
    total = left = len(waiting) * (1 + len(METHODS))
    results: list[Result] = []
    ready, under_way = list(waiting), dict[Future[Result], Job]()
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            while ready or under_way:
                while ready and len(under_way) < workers:  # no more than run: what waits in a pool cannot be stopped
                    job = ready.pop(0)
                    under_way[pool.submit(run_job, job, folder)] = job
                for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                    ready += waiting.get(under_way.pop(future), [])
                    results.append(future.result())
                    left -= 1
                    report(results[-1], left)
        except KeyboardInterrupt:  # which reaches the runs under way too: they save and stop
            raise Interrupted(f"stopped with {left} of {total} runs to go; saved in {folder}") from None
    grid = {
        "tasks": list(dict.fromkeys(base.task for base in waiting)),
        "methods": list(METHODS),
        "seeds": list(seeds),
        "best": {base.task: best_score(base.config) for base in waiting},
        "seconds": round(time.perf_counter() - began, 1),
        "machine": machine(),
        "results": sorted(results, key=lambda result: (result["task"], result["seed"], result["method"])),
    }
    (folder / "grid.json").write_text(json.dumps(grid, indent=1))


def machine() -> str:
    """Where a figure was measured."""
    return f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, torch {torch.__version__}"
