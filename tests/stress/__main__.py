"""python -m stress --out FOLDER: run all kinds of cases and print one table. See docs/reliability.md."""

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from stress import materials, station
from stress.cases import BAD, GOOD, Site

KINDS = {"kills": 1000, "damage": 2000, "hostile": 500, "torchrun": 100, "rewards": 200}
TITLES = {
    "kills": "SIGKILL",
    "damage": "damaged files",
    "hostile": "hostile files",
    "torchrun": "torchrun, one killed",
    "rewards": "failing rewards",
}
COLUMNS = ("tried", *GOOD, *BAD)
FRESH = 0.015  # of the commands, with a new interpreter: about 60 of 4,000
BUSY = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"
MEMORY = "/dev/shm"  # writing is quick there, so that there are many checkpoints to be killed in
RESULTS = "results.jsonl"  # a line a case
KEPT = 30  # folders of failed cases


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="stress", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/stress"), help="where results and failed cases go")
    parser.add_argument("--resume", action="store_true", help="keep the results that --out has, and do the rest")
    parser.add_argument("--only", choices=KINDS, action="append", help="this kind; again for more")
    parser.add_argument("--count", type=int, help="cases (kills: kills) of each kind, instead of the full number")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", type=int, help="repeat the case of this number; needs --only")
    parser.add_argument("--stations", type=int, default=4, help="cases at a time")
    parser.add_argument("--load", type=int, default=2, help="processes that keep the CPU busy, at normal priority")
    parser.add_argument("--station", help=argparse.SUPPRESS)
    return parser.parse_args()


@dataclass
class Row:
    """A line of the table."""

    counts: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    cpu: float = 0.0


@dataclass
class Plan:
    """The cases still to do, given out one by one."""

    wanted: dict[str, int]
    first: int = 0
    given: set[tuple[str, int]] = field(default_factory=set)
    tried: Counter[str] = field(default_factory=Counter)
    open: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self) -> tuple[str, int] | None:
        """The kind that is furthest behind, and the number of a case of it."""
        with self.lock:
            behind = [kind for kind in self.wanted if self.tried[kind] + self.open[kind] < self.wanted[kind]]
            if not behind:
                return None
            kind = min(behind, key=lambda kind: (self.tried[kind] + self.open[kind]) / self.wanted[kind])
            case = next((kind, index) for index in count(self.first) if (kind, index) not in self.given)
            self.given.add(case)
            self.open[kind] += 1
            return case

    def done(self, result: dict[str, Any]) -> None:
        with self.lock:
            self.open[result["kind"]] -= 1
            self.note(result)

    def note(self, result: dict[str, Any]) -> None:
        """A case that is done."""
        self.given.add((result["kind"], result["index"]))
        self.tried[result["kind"]] += result["counts"].get("tried", 0) or 1


def main() -> int:
    chosen = options()
    if sys.platform != "linux":
        raise SystemExit("stress needs Linux: it looks for orphans in /proc and follows folders with inotify")
    if chosen.station:
        serve(*chosen.station.split("|"))
        return 0
    out: Path = chosen.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    results = kept(out, chosen.seed) if chosen.resume else []
    if not chosen.resume:
        shutil.rmtree(out / "failures", ignore_errors=True)
        (out / RESULTS).unlink(missing_ok=True)
    wanted = {kind: chosen.count or KINDS[kind] for kind in chosen.only or KINDS}
    plan = Plan({kind: 1 for kind in wanted} if chosen.case is not None else wanted, chosen.case or 0)
    for result in results:
        plan.note(result)
    began = time.monotonic() - max((result["at"] for result in results), default=0.0)
    with tempfile.TemporaryDirectory(prefix="stress-", dir=MEMORY if os.path.isdir(MEMORY) else None) as work:
        load = [subprocess.Popen([sys.executable, "-c", BUSY], start_new_session=True) for _ in range(chosen.load)]
        try:
            everything(plan, Path(work), out, chosen.seed, chosen.stations, results, began)
        finally:
            for process in load:
                process.kill()
    return report(results, out, chosen, time.monotonic() - began)


def kept(out: Path, seed: int) -> list[dict[str, Any]]:
    """The results of a run that did not end, or that is given more cases."""
    try:
        results = [dict(json.loads(line)) for line in (out / RESULTS).read_text().splitlines()]
    except FileNotFoundError:
        return []
    if others := {result["seed"] for result in results} - {seed}:
        raise SystemExit(f"{out / RESULTS} has seed {others.pop()}, not {seed}")
    return results


def everything(
    plan: Plan, work: Path, out: Path, seed: int, stations: int, results: list[dict[str, Any]], began: float
) -> None:
    """Do the cases that are left, and add what came of them to the results, here and on the disk."""
    subprocess.run(command(work, out, seed, "make"), check=True, env=environment())
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[bad]}"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as bar:
        tasks = {kind: bar.add_task(TITLES[kind], total=total, bad="") for kind, total in plan.wanted.items()}
        for kind, task in tasks.items():
            bar.update(task, completed=plan.tried[kind])
        bad = Counter(result["kind"] for result in results for _ in result["failures"])
        died: list[str] = []

        def station_thread(number: int) -> None:
            with subprocess.Popen(
                command(work, out, seed, str(number)),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(),
            ) as process:  # fmt: skip
                assert process.stdin
                assert process.stdout
                while case := plan.take():
                    print(json.dumps(case), file=process.stdin, flush=True)
                    answer = process.stdout.readline()
                    if not answer:
                        died.append(f"station {number} died in case {case[1]} of {case[0]}")
                        return
                    result = json.loads(answer) | {"seed": seed, "at": round(time.monotonic() - began, 1)}
                    results.append(result)
                    with (out / RESULTS).open("a") as file:  # a line is one write: no station is in the middle of it
                        file.write(json.dumps(result) + "\n")
                    plan.done(result)
                    bad[case[0]] += len(result["failures"])
                    bar.update(tasks[case[0]], completed=plan.tried[case[0]], bad=f"{bad[case[0]] or ''}")

        threads = [threading.Thread(target=station_thread, args=(number,)) for number in range(stations)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if died:  # a fault of the harness: without its cases the table would be untrue
        raise SystemExit("; ".join(died))


def command(work: Path, out: Path, seed: int, what: str) -> list[str]:
    return [sys.executable, "-m", "stress", "--station", f"{what}|{seed}|{work}|{out}"]


def environment() -> dict[str, str]:
    """One thread for each process; no hub; terminals that understand no colours; this seqmixer in every folder."""
    path = os.pathsep.join(map(os.path.abspath, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
    more = {
        "PYTHONPATH": path,
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "TERM": "dumb",
    }
    return {**os.environ, **more}


def serve(what: str, seed: str, work: str, out: str) -> None:
    """A station: do the cases that standard input names, one a line."""
    station.prepare()
    folder = Path(work) / "materials"
    if what == "make":
        materials.make(folder)
        return
    for line in sys.stdin:
        kind, index = json.loads(line)
        print(json.dumps(one(kind, index, int(seed), folder, Path(work) / f"case-{what}", Path(out))), flush=True)


def one(kind: str, index: int, seed: int, made: Path, folder: Path, out: Path) -> dict[str, Any]:
    """Do a case.  -> what came of it"""
    module = import_module(f"stress.{kind}")
    rng = random.Random(f"{seed} {kind} {index}")
    chosen = materials.OWN if rng.random() < getattr(module, "SHARE", 0.5) else materials.HUGGING_FACE
    flavour = rng.choice([name for name in chosen if name in getattr(module, "FLAVOURS", chosen)])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    site = Site(made, folder, rng, flavour, FRESH)
    began, cpu = time.monotonic(), used()
    try:
        module.case(site)
    except Exception:  # a fault of the harness
        site.counts["tried"] += not site.counts["tried"]
        site.failures.append({"verdict": "broken", "what": traceback.format_exc()})
    name = f"{kind}-{index}"
    if site.failures and len(list((out / "failures").glob("*"))) < KEPT:
        (out / "failures").mkdir(exist_ok=True)
        subprocess.run(["cp", "-a", folder, out / "failures" / name], check=False)
    repeat = f"python -m stress --only {kind} --seed {seed} --case {index}"
    return {
        "kind": kind,
        "index": index,
        "flavour": flavour,
        "family": materials.family(flavour),
        "counts": dict(site.counts),
        "failures": [{"case": name, "flavour": flavour, "repeat": repeat, **failure} for failure in site.failures],
        "commands": site.commands,
        "fresh": site.started,
        "seconds": time.monotonic() - began,
        "cpu": used() - cpu,
    }


def used() -> float:
    """CPU seconds of this process and of all that ended below it."""
    found = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in found)


def report(results: list[dict[str, Any]], out: Path, chosen: argparse.Namespace, seconds: float) -> int:
    """Print the table, write stress.json.  -> the exit code"""
    rows: dict[tuple[str, str], Row] = {}
    for result in sorted(results, key=lambda result: (list(KINDS).index(result["kind"]), result["family"] != "own")):
        row = rows.setdefault((result["kind"], result["family"]), Row())
        row.counts.update(result["counts"])
        row.seconds += result["seconds"]
        row.cpu += result["cpu"]
    table = Table(*("", *COLUMNS, "CPU s"))
    for (kind, family), row in rows.items():
        table.add_row(f"{TITLES[kind]}, {family}", *(str(row.counts[name]) for name in COLUMNS), f"{row.cpu:.0f}")
    failures = [failure for result in results for failure in result["failures"]]
    record = {
        "seed": chosen.seed,
        "minutes": round(seconds / 60, 1),
        "load": chosen.load,
        "stations": chosen.stations,
        "commands": sum(result["commands"] for result in results),
        "fresh": sum(result["fresh"] for result in results),
        "rows": [
            {"kind": kind, "family": family, **{name: row.counts[name] for name in COLUMNS},
             "cpu": round(row.cpu, 1), "seconds": round(row.seconds, 1)}
            for (kind, family), row in rows.items()
        ],
        "slowest": [
            {name: result[name] for name in ("kind", "index", "flavour", "cpu", "seconds")}
            for result in sorted(results, key=lambda result: -result["cpu"])[:20]
        ],
        "failures": failures,
    }  # fmt: skip
    (out / "stress.json").write_text(json.dumps(record, indent=1))
    Console(width=140).print(table)
    print(
        f"{record['commands']:,} commands, {record['fresh']} of them with a new interpreter, in {record['minutes']} "
        f"minutes beside {chosen.load} busy processes, seed {chosen.seed}; {out / 'stress.json'}"
    )
    for what, number in Counter((each["verdict"], each["what"]) for each in failures).most_common(20):
        print(f"{number:4} x {what[0]}: {what[1]}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
