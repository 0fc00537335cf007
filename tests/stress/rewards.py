"""Reward functions that fail in every way: no hang, no process left, no answer mixed up, one line."""

from dataclasses import dataclass
from pathlib import Path

from stress.cases import Site, differing, wrong
from stress.materials import RANKS, result, train, truth
from stress.station import Ended, Kill

SHARE = 0.75  # of the cases, with own models
FLAVOURS = RANKS
NAME = "reward.name=own:reward"
STOPPED = 130

MODULE = """
import asyncio, ctypes, itertools, math, multiprocessing, os, re, resource, shutil, signal, subprocess, sys, threading, time

CALLS = itertools.count(1)
HERE = os.path.dirname(os.path.abspath(__file__))


def run():  # the parent of the guardian of this worker
    with open(f"/proc/{os.getppid()}/stat") as file:
        return int(file.read().rpartition(") ")[2].split()[1])


def fault(hypothesis):
    open(os.path.join(HERE, "failed"), "w").close()
    {fault}


def overlap(hypothesis, references):
    wanted, got = references[0].split(), hypothesis.split()
    return len(set(got) & set(wanted)) / (1 + abs(len(got) - len(wanted)))


def reward(hypothesis, references):
    if next(CALLS) == {call}:
        value = fault(hypothesis)
        if value is not None:
            return value[0]
    return overlap(hypothesis, references)


def batched(hypotheses, references):
    values = [overlap(one, of) for one, of in zip(hypotheses, references)]
    if next(CALLS) == {call}:
        value = fault(hypotheses)
        if value is not None:
            return value[0]
    return values


async def later(hypothesis, references):
    return reward(hypothesis, references)


class Odd(Exception):
    def __str__(self):
        raise ValueError("no words")


class Slow:
    def __float__(self):
        while True:
            pass
"""


@dataclass(frozen=True)
class Fault:
    """What a reward does once, and what may come of it."""

    code: str
    ends: str = "line"  # `line`: exit 2 with one; `same`: the run ends as without it; `either`; `stopped`: exit 130
    alone: bool = False  # also with workers = 0; where not, nobody could help
    kind: str = "reward"  # or batched


LINE, SAME, EITHER = "line", "same", "either"
FAULTS = {
    "raises": Fault("raise ValueError('no idea')", alone=True),
    "raises lines": Fault("raise ValueError('one\\ntwo\\nthree')", alone=True),
    "raises escapes": Fault("raise ValueError('\\x1b[2J\\x1b]0;x\\x07')", alone=True),
    "raises what has no words": Fault("raise Odd()", alone=True),
    "raises BaseException": Fault("raise BaseException('out')", alone=True),
    "raises GeneratorExit": Fault("raise GeneratorExit", alone=True),
    "raises StopIteration": Fault("raise StopIteration", alone=True),
    "raises SystemExit": Fault("sys.exit(0)", alone=True),
    "raises CancelledError": Fault("raise asyncio.CancelledError", alone=True),
    "raises KeyboardInterrupt": Fault("raise KeyboardInterrupt"),
    "recurses": Fault("return [(lambda f: f(f))(lambda f: f(f))]", alone=True),
    "raises a chain": Fault(
        "try: 1 / 0\n    except ZeroDivisionError as error: raise ValueError('x') from error", alone=True
    ),
    "sleeps": Fault("time.sleep(1000)"),
    "loops": Fault("while True: pass"),
    "regex holds the GIL": Fault("re.match(r'(a+)+$', 'a' * 60 + 'b')"),
    "C loop holds the GIL": Fault("sum(itertools.repeat(0))"),
    "a huge power": Fault("10 ** 10 ** 9"),
    "waits for a lock": Fault("lock = threading.Lock(); lock.acquire(); lock.acquire()"),
    "forks": Fault("pid = os.fork()\n    if pid == 0: os._exit(0)\n    os.waitpid(pid, 0)", SAME, alone=True),
    "forks and returns twice": Fault("os.fork()", EITHER),
    "forks and the child raises": Fault("if os.fork() == 0: raise ValueError('child')", EITHER),
    "forks and the child leaves": Fault("if os.fork() == 0: sys.exit(0)", EITHER),
    "forks, and the child sleeps": Fault("if os.fork() == 0: time.sleep(1000)", EITHER),
    "forks, and the parent ends": Fault("if os.fork(): os._exit(0)", EITHER),
    "starts a process": Fault("subprocess.Popen(['sleep', '1000'])", SAME),
    "starts Python": Fault("subprocess.Popen([sys.executable, '-c', 'while True: pass'])", SAME),
    "starts a shell that starts": Fault("subprocess.Popen('sleep 1000 & sleep 1000 & wait', shell=True)", SAME),
    "starts processes and hangs": Fault("subprocess.Popen('sleep 1000 & sleep 1000', shell=True); time.sleep(1000)"),
    "starts a process and raises": Fault("subprocess.Popen(['sleep', '1000']); raise ValueError('x')"),
    "starts a process and ends": Fault("subprocess.Popen(['sleep', '1000']); os._exit(1)"),
    "waits for a process": Fault("subprocess.run(['sleep', '1000'])"),
    "a process with the pipes": Fault("subprocess.Popen(['sleep', '1000'], close_fds=False)", EITHER),
    "starts multiprocessing": Fault(
        "multiprocessing.get_context('fork').Process(target=time.sleep, args=(1000,)).start()", EITHER
    ),
    "os._exit(0)": Fault("os._exit(0)"),
    "os._exit(7)": Fault("os._exit(7)"),
    "aborts": Fault("os.abort()"),
    "reads address 0": Fault("ctypes.string_at(0)"),
    "SIGKILL to itself": Fault("os.kill(os.getpid(), signal.SIGKILL)"),
    "SIGSTOP to itself": Fault("os.kill(os.getpid(), signal.SIGSTOP)"),
    "SIGTERM to itself": Fault("os.kill(os.getpid(), signal.SIGTERM)", EITHER),
    "SIGINT to itself": Fault("os.kill(os.getpid(), signal.SIGINT)", EITHER),
    "SIGHUP to itself": Fault("os.kill(os.getpid(), signal.SIGHUP)", EITHER),
    "SIGALRM to itself": Fault("signal.alarm(1); time.sleep(1000)"),
    "SIGTERM to the run": Fault("os.kill(run(), signal.SIGTERM)", "stopped"),
    "SIGINT to the run": Fault("os.kill(run(), signal.SIGINT)", "stopped"),
    "little CPU time": Fault("resource.setrlimit(resource.RLIMIT_CPU, (1, 1))\n    while True: pass"),
    "prints much": Fault("[print('x' * 999) for _ in range(200_000)] and None\n    return None", SAME, alone=True),
    "prints much to standard error": Fault(
        "[print('x' * 99, file=sys.stderr) for _ in range(200_000)] and None\n    return None", EITHER
    ),
    "fills the memory": Fault("kept = []\n    while True: kept.append(bytearray(10**8))"),
    "changes the folder": Fault("os.chdir('/')", SAME, alone=True),
    "deletes its folder": Fault("os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')", SAME, alone=True),
    "closes files": Fault("os.closerange(3, 100)", EITHER),
    "closes standard output": Fault("os.close(1)", SAME),
    "closes standard input": Fault("os.close(0)", SAME, alone=True),
    "takes standard output away": Fault("sys.stdout = sys.stderr = None", EITHER),
    "leads a session": Fault("os.getpid() == os.getpgid(0) or os.setsid()", SAME),
    "a thread that stays": Fault("threading.Thread(target=time.sleep, args=(1000,)).start()", SAME),
    "an end that hangs": Fault("import atexit; atexit.register(time.sleep, 1000)", SAME),
    "heeds no signal": Fault("[signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]; time.sleep(1000)"),
    "imports what lies beside it": Fault("import beside; assert beside.VALUE == 1", SAME, alone=True),
    "returns None": Fault("return [None]", alone=True),
    "returns a word": Fault("return ['x']", alone=True),
    "returns escapes": Fault("return ['\\x1b[2J']", alone=True),
    "returns a list": Fault("return [[1.0]]", alone=True),
    "returns nan": Fault("return [math.nan]", alone=True),
    "returns inf": Fault("return [-math.inf]", alone=True),
    "returns a huge number": Fault("return [10 ** 400]", alone=True),
    "returns much text": Fault("return ['x' * 10**6]", alone=True),
    "returns an object": Fault("return [object()]", alone=True),
    "returns a slow number": Fault("return [Slow()]"),
    "returns a function": Fault("return [lambda: 1]", alone=True),
    "too few": Fault("return [[0.0] * (len(hypothesis) - 1)]", alone=True, kind="batched"),
    "too many": Fault("return [[0.0] * (len(hypothesis) + 1)]", alone=True, kind="batched"),
    "a number for all": Fault("return [1.0]", alone=True, kind="batched"),
    "names": Fault("return [{'a': 1}]", alone=True, kind="batched"),
    "endless": Fault("return [itertools.count()]", kind="batched"),
    "one is none": Fault("return [[None] * len(hypothesis)]", alone=True, kind="batched"),
    "numbers that end early": Fault("return [(1 / 0 for _ in hypothesis)]", alone=True, kind="batched"),
}
HANGS = {
    "sleeps": "time.sleep(1000)",
    "loops": "while True: pass",
    "regex holds the GIL": "re.match(r'(a+)+$', 'a' * 60 + 'b')",
    "C loop holds the GIL": "sum(itertools.repeat(0))",
    "starts a process and waits": "subprocess.run(['sleep', '1000'])",
    "stops": "os.kill(os.getpid(), signal.SIGSTOP)",
    "heeds no signal": "[signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]; time.sleep(1000)",
}


def case(site: Site) -> None:
    """One fault, or SIGKILL to a run whose reward hangs; then the function is fixed, and the run resumed."""
    site.counts["tried"] += 1
    (site.folder / "beside.py").write_text("VALUE = 1\n")
    (killed if site.rng.random() < 0.15 else fails)(site)


def fails(site: Site) -> None:
    rng = site.rng
    name = rng.choice(list(FAULTS))
    fault = FAULTS[name]
    workers = rng.choice((0, 1, 2) if fault.alone else (1, 2))
    call = rng.choice((1, 2, 5, 11, 30, 60))
    kind = (
        "batched"
        if fault.kind == "batched"
        else rng.choice(("reward", "reward", "later") if fault.alone else ("reward",))
    )
    if kind == "batched":
        call = rng.choice((1, 2, 5))
    settings = [f"reward.name=own:{kind}", f"reward.workers={workers}"]
    settings += [f"reward.seconds={60 if fault.ends == SAME else 2}"] if workers else []
    what = f"{name}, {kind}, in call {call}, workers = {workers}"
    write(site.folder, fault.code, call)
    argv = train(site.materials, site.flavour, ".", *settings)
    ended = site.run(argv)
    if not (site.folder / "failed").exists():  # a worker had fewer calls than that
        compare(site, ended, what, "harmless")
        return
    problem = wrong_end(ended, fault)
    if problem:
        site.count(problem, ended, what)
        return
    if ended.code == 0:
        compare(site, ended, what, "harmless")
    elif rng.random() < 0.5:
        site.count("refused", ended, what)
    else:
        resume(site, argv, what)


def wrong_end(ended: Ended, fault: Fault) -> str | None:
    """What is wrong with the end of a run whose reward fails."""
    if fault.ends == "stopped" and ended.code == STOPPED and not ended.left:
        return "traceback" if b"Traceback" in ended.err else None
    problem = wrong(ended)
    if problem or fault.ends == EITHER:
        return problem
    if fault.ends == SAME:
        return "lost" if ended.code else None
    return None if ended.code else "silent"


def killed(site: Site) -> None:
    """SIGKILL to a run while its reward hangs in a worker."""
    rng = site.rng
    name, workers = rng.choice(list(HANGS)), rng.choice((1, 2))
    mark = site.folder / "failed"
    write(site.folder, HANGS[name], rng.choice((5, 11, 30)))
    argv = train(site.materials, site.flavour, ".", NAME, f"reward.workers={workers}")
    kill = Kill(seconds=0, victim=lambda pid: pid if mark.exists() else None)
    ended = site.run(argv, kill=kill)
    what = f"{name}, workers = {workers}, and the run is killed"
    problem = wrong(ended)
    if problem:
        site.count(problem, ended, what)
    else:
        resume(site, argv, what)


def resume(site: Site, argv: list[str], what: str) -> None:
    """Fix the function and give the same command."""
    write(site.folder)
    compare(site, site.run(argv), f"{what}; fixed and resumed", "recovered")


def compare(site: Site, ended: Ended, what: str, good: str) -> None:
    problem = wrong(ended) or ("lost" if ended.code else None)
    others = (
        differing(result(site.folder / "run"), truth(site.materials, site.flavour)["reward"]) if not problem else []
    )
    site.count(problem or ("silent" if others else good), ended, f"{what}: {', '.join(others)}" if others else what)


def write(folder: Path, code: str = "pass", call: int = 0) -> None:
    (folder / "own.py").write_text(MODULE.replace("{fault}", code).replace("{call}", str(call)))
