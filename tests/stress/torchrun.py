"""Two ranks that torchrun starts, one of them killed: the job ends soon, in one line, and the same command resumes it."""

from pathlib import Path

from stress.cases import CONTROL, Site, differing
from stress.materials import RANKS, result, train, truth
from stress.station import Ended, Kill, children

SHARE = 0.7  # of the cases, with own models
FLAVOURS = RANKS
FRESH = 0.02  # of the jobs, with new interpreters
SOON = 25.0  # seconds in which a job must end: after 30, torchrun kills what is left
FORKED, USUAL = "stress.launcher", "torch.distributed.run"


def job(folder: Path, argv: list[str]) -> list[str]:
    """Arguments of torchrun. What ranks say goes to files, apart from what torchrun says."""
    return ["--nproc-per-node=2", "--redirects=3", f"--log-dir={folder / 'logs'}", "-m", "seqmixer", *argv]


def case(site: Site) -> None:
    """Kill a rank of a job, and look how the job ends; then resume it."""
    expected = truth(site.materials, site.flavour)["ranks"]
    rng, argv = site.rng, job(site.folder, train(site.materials, site.flavour))
    program = USUAL if rng.random() < FRESH else FORKED
    site.started += program == USUAL
    number = rng.randrange(2)
    victim = lambda pid: ranks[number] if len(ranks := sorted(children(pid))) == 2 else None  # noqa: E731
    when = rng.randint(1, expected["changes"]) if rng.random() < 0.5 else 0
    seconds = rng.expovariate(100) if when else rng.uniform(0, expected["seconds"])
    kill = Kill(seconds=seconds, changes=when, victim=victim)
    ended = site.run(argv, watched=site.folder, kill=kill, program=program)
    site.counts["tried"] += 1
    what = f"rank {number} killed after {f'{when} changes' if when else f'{kill.seconds:.2f} s'}"
    problem = wrong(ended, site.folder)
    if problem:
        site.count(problem, ended, f"{what}; {said(site.folder)}")
        return
    resumed = site.run(argv, program=program)
    if resumed.hung or resumed.left:
        site.count("hang" if resumed.hung else "orphan", resumed, what)
    elif resumed.code:
        site.count("lost", resumed, f"{what}; {said(site.folder)}")
    else:
        others = differing(result(site.folder / "run"), expected["train"])
        site.count("silent" if others else "recovered", resumed, f"{what}: {', '.join(others)}")


def wrong(ended: Ended, folder: Path) -> str | None:
    """What is wrong with the end of a job that lost a rank."""
    if ended.hung or ended.after > SOON:
        return "hang"
    if ended.left:
        return "orphan"
    err = b"".join(logs(folder, "stderr"))
    lines = [line for line in err.splitlines() if line.startswith(b"seqmixer: ") and b"seqmixer: warning" not in line]
    if b"Traceback" in err or CONTROL.search(err) or len(lines) > 1:
        return "traceback"
    done = any(b" (test) " in out for out in logs(folder, "stdout"))
    begun = (folder / "run").exists()  # before, torchrun alone says what happened
    return "silent" if ended.killed and begun and not lines and not done else None


def logs(folder: Path, name: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted((folder / "logs").rglob(f"{name}.log"))]


def said(folder: Path) -> str:
    """What the ranks said last."""
    return " | ".join(err.decode(errors="backslashreplace")[-400:] for err in logs(folder, "stderr"))
