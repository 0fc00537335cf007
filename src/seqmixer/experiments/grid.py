"""Many runs that make one table: tasks x methods x seeds, as in the paper's Fig. 5.

For each task and seed, N^XENT epochs of XENT make the base. Every method, XENT too, then trains for the same number of
epochs from the best model of that base, so that the methods differ in nothing but the algorithm of these epochs.
"""

import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seqmixer import __version__, files
from seqmixer.build import Metrics, build_task
from seqmixer.config import TOYS, Config, DataConfig, TextConfig
from seqmixer.data import Task, in_order, toy
from seqmixer.errors import Interrupted, RunError
from seqmixer.evaluation import read_scores
from seqmixer.experiments.methods import BASE, METHODS, REFERENCE, Method
from seqmixer.parallel import workers as processes
from seqmixer.runs import Run, located, task_of, train
from seqmixer.storage.identity import read_config, require_same_config, require_same_data
from seqmixer.training import Place, epochs, machine, read_log
from seqmixer.types import Rollout

LOOK = 1.0  # seconds between looks at the runs under way

Result = dict[str, Any]  # of one run: task, method, seed, score, valid, epoch, signature, seconds, machine, ...
Report = Callable[[Result, int], None]  # called after each run with what came of it and how many are left
Judge = Callable[[Run], Mapping[str, Any]]  # what else is found out about a trained run, for its result


@dataclass(frozen=True)
class Recipe:
    """One row of the table: a config, and the methods it is trained with."""

    task: str  # its name in the table, and the folder of its runs
    path: Path
    settings: tuple[str, ...] = ()  # that override the file's
    methods: tuple[Method, ...] = METHODS


@dataclass(frozen=True)
class Job:
    """One run of the grid."""

    task: str
    method: str  # "base", or the name of a method
    seed: int
    config: Config


def base_job(recipe: Recipe, seed: int) -> Job:
    plain = Config.load(recipe.path, recipe.settings)
    return job(recipe, seed, BASE, [f"algorithm.name={REFERENCE}", f"training.epochs={plain.algorithm.xent_epochs}"])


def scratch_jobs(recipe: Recipe, seed: int) -> list[Job]:
    """The methods that need no base. Their rate is that of the base: there is no trained model to be careful with."""
    plain = Config.load(recipe.path, recipe.settings)
    rest = [f"training.epochs={plain.algorithm.xent_epochs}", f"training.rl_lr={plain.training.lr}"]
    return [job(recipe, seed, each.name, [*each.settings, *rest]) for each in recipe.methods if each.scratch]


def method_jobs(recipe: Recipe, seed: int, folder: Path) -> list[Job]:
    """The runs that start from a base. Without a rate of their own (training.rl_lr) they keep that of the base.

    A rate of its own stays, for all methods alike: only XENT lowers the perplexity that decides on a decay.
    """
    plain = Config.load(recipe.path, recipe.settings)
    base = folder / recipe.task / f"seed-{seed}" / BASE
    rate = plain.training.rl_lr or best_rate(base)
    rest = ["algorithm.xent_epochs=0", f"training.start={json.dumps(str(base))}", f"training.lr={rate}"]
    rest += ["training.decay=1"] if plain.training.rl_lr else []
    return [job(recipe, seed, each.name, [*each.settings, *rest]) for each in recipe.methods if not each.scratch]


def job(recipe: Recipe, seed: int, method: str, settings: Sequence[str]) -> Job:
    plain = Config.load(recipe.path, recipe.settings)
    place = [f"name={recipe.task}/seed-{seed}/{method}", f"data.folder={json.dumps(plain.data.folder)}"]
    config = Config.load(recipe.path, [*recipe.settings, f"seed={seed}", *place, *settings])
    return Job(recipe.task, method, seed, config)


def best_rate(run: Path) -> float:
    """The learning rate of the epoch of a run's best model."""
    return float([event["rate"] for event in epochs(read_log(run)) if event["best"]][-1])


def nothing_more(run: Run) -> Mapping[str, Any]:
    return {}


def run_job(job: Job, folder: Path, judge: Judge = nothing_more, workers: int = 1) -> Result:
    """Train and judge one run of `workers` at a time, or read its result if it is finished. A base is not judged."""
    result = finished(job, folder)
    if result is None:
        began = time.perf_counter()
        run = train(job.config, folder, callbacks=[Place()], task=shared_task(job.config))
        scores = read_scores(run.folder)
        trained = time.perf_counter()
        processes.stop_if_requested()  # in the last validation, which does not stop
        result = {
            "task": job.task,
            "method": job.method,
            "seed": job.seed,
            "score": scores.test,
            "valid": scores.valid,
            "epoch": scores.epoch,
            "signature": scores.signature,
            "seconds": round(sum(sum(event["seconds"].values()) for event in epochs(read_log(run.folder))), 1),
            "run": job.config.name,
            "version": __version__,
            "machine": machine(),
            "workers": workers,
            **({} if job.method == BASE else judge(run)),
        }
        result["wall"] = {"train": round(trained - began, 1), "judge": round(time.perf_counter() - trained, 1)}
        files.write(run.folder / "result.json", json.dumps(result, indent=1))
    return result


def shared_task(config: Config) -> Task | None:
    """The data of one run after another, read once. None: the words of a pretrained model are its own."""
    return read_once(located(config).data, config.text) if config.model.pretrained is None else None


def data_of(run: Run) -> Task:
    """The runs of one experiment share their data, which takes longer to read than to decode."""
    task, vocabs = shared_task(run.config), (run.source_vocab, run.target_vocab)
    return task if task and (task.source_vocab, task.target_vocab) == vocabs else run.task()


@lru_cache(maxsize=1)
def read_once(data: DataConfig, text: TextConfig) -> Task:
    return build_task(data, text=text)


def finished(job: Job, folder: Path) -> Result | None:
    """The result of a run that an earlier call finished; None where there is none."""
    run = folder / job.config.name
    path = run / "result.json"
    if not path.is_file():
        return None
    require_same_config(run, located(job.config))
    require_same_data(run, (shared_task(job.config) or task_of(job.config, run)).splits)
    try:
        result: Result = files.read_json(path, Result)
        version = result["version"]
    except (RunError, KeyError):
        return None  # damaged: what it said is found out again
    if version != __version__:
        raise RunError(
            f"{run} was made by seqmixer {version}, this is {__version__}: their scores may not compare; "
            "choose another --out, or delete the folder"
        )
    return result if read_config(run).training.epochs == job.config.training.epochs else None


def run_grid(
    recipes: Sequence[Recipe],
    seeds: Sequence[int],
    folder: Path,
    workers: int,
    report: Report,
    *,
    judge: Judge = nothing_more,
    look: Callable[[Collection[Job]], None] = lambda under_way: None,
) -> None:
    """Run every job, some at a time, bases before what starts from them, and leave folder/grid.json.

    Done runs are not run again. `look` is called every second with the jobs under way.
    """
    began = time.perf_counter()
    bases = {base_job(recipe, seed): (recipe, seed) for recipe in recipes for seed in seeds}
    total = left = sum(1 + len(recipe.methods) for recipe, _ in bases.values())
    results: list[Result] = []
    ready, under_way = list(bases), dict[Future[Result], Job]()
    try:
        with processes.started(workers, partial(share_cores, workers)) as pool:
            while ready or under_way:
                while ready and len(under_way) < workers:  # no more than run: what waits in a pool cannot be stopped
                    job = ready.pop(0)
                    found = finished(job, folder)  # before a process is started for it
                    under_way[completed(found) if found else pool.submit(run_job, job, folder, judge, workers)] = job
                for future in wait(under_way, timeout=LOOK, return_when=FIRST_COMPLETED).done:
                    results.append(future.result())
                    left -= 1
                    done = under_way.pop(future)
                    if done in bases:  # its methods next, so that a stopped grid has complete seeds
                        ready = [*method_jobs(*bases[done], folder), *scratch_jobs(*bases[done]), *ready]
                    report(results[-1], left)
                look(under_way.values())
    except KeyboardInterrupt:
        raise Interrupted(f"stopped with {left} of {total} runs to go; saved in {folder}") from None
    finally:
        seconds = count_seconds(folder, time.perf_counter() - began)
    write_grid(folder, recipes, list(bases), seeds, results, seconds)


def count_seconds(folder: Path, more: float) -> float:
    """Add to the seconds of the earlier calls for this table. -> of all calls"""
    path = folder / "seconds"
    try:
        before = float(files.read_bytes(path))
    except (RunError, ValueError):  # none yet, or damaged
        before = 0.0
    folder.mkdir(parents=True, exist_ok=True)
    files.write(path, f"{before + more:.1f}")
    return before + more


def share_cores(workers: int) -> None:
    """Divide the threads by the number of workers; called once in each process of a pool."""
    torch.set_num_threads(max(1, torch.get_num_threads() // workers))


def completed(result: Result) -> Future[Result]:
    future = Future[Result]()
    future.set_result(result)
    return future


def write_grid(
    folder: Path,
    recipes: Sequence[Recipe],
    bases: Sequence[Job],
    seeds: Sequence[int],
    results: Sequence[Result],
    seconds: float,
) -> None:
    """grid.json: all that a report needs, beside the run folders."""
    configs = {base.task: base.config for base in bases}  # one seed of each: all have the same data
    grid = {
        "tasks": [recipe.task for recipe in recipes],
        "methods": [method.name for method in recipes[0].methods],
        "seeds": list(seeds),
        "best": {task: best_score(config) for task, config in configs.items() if config.data.task in TOYS},
        "seconds": round(seconds, 1),
        "workers": max(result["workers"] for result in results),
        "machine": "; ".join(dict.fromkeys(result["machine"] for result in results)),
        "results": sorted(results, key=lambda result: (result["task"], result["seed"], result["method"])),
    }
    files.write(folder / "grid.json", json.dumps(grid, indent=1))


def best_score(config: Config) -> float:
    """The test score of the best grammatical outputs: for each source, the sentence with the highest expected reward.

    It is what a predictor gets that knows the true distribution of references.
    """
    task = build_task(config.data)
    metrics, vocab = Metrics(config, task), task.target_vocab
    metric, reward = metrics.chosen[0], metrics.reward

    def rewards(hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
        return reward(Rollout(rows(hypotheses), rows(references).unsqueeze(1))).tolist()

    def rows(sentences: Sequence[str]) -> Tensor:
        ids = [torch.tensor(vocab.encode(sentence)) for sentence in sentences]
        return torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)  # (n, longest); PAD is 0

    words = rows(toy.best_outputs(task.test, rewards))
    (everything,) = in_order(task.test, len(task.test), task.length)
    return float(metric.corpus(metric.statistics(everything.rollout(words))))
