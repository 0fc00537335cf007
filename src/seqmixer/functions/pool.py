"""Processes that score sentences with a user's function, so that it cannot hold up the program, hang or outlive it."""

import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable, Sequence
from functools import cache, partial
from multiprocessing import util
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, NamedTuple

from seqmixer.errors import RewardError
from seqmixer.functions.kinds import Row, Scorer, scores, short
from seqmixer.parallel.workers import SPAWN, guard, stops_blocked

Collect = Callable[[], list[float]]
DYING = 10  # seconds between the end of a worker's connection and its own


class Worker(NamedTuple):
    """A worker process and its guardian, which kills it, and all that it started, when `life` is closed or we die."""

    process: SpawnProcess  # the guardian, which ends last, as the worker did
    rows: Connection  # to the worker, and its answers
    life: Connection

    def receive(self, seconds: float | None = None) -> Any:
        """The next message of the worker. TimeoutError, or EOFError when it is gone."""
        if not wait([self.rows, self.life], seconds):
            raise TimeoutError
        if not self.rows.poll():  # what it started may hold its end open
            raise EOFError
        return self.rows.recv()

    def ending(self) -> str:
        """How the worker ended, in words."""
        if not wait([self.life], DYING):
            return "closed files"
        self.process.join()
        code = self.process.exitcode or 0
        try:
            name = signal.Signals(-code if code < 0 else code - 128).name
        except ValueError:
            return f"exit code {code}"
        return f"{name} (as when memory runs out)" if name == "SIGKILL" else name


class Pool:
    """`submit` rows and collect their scores later. The processes start with the first rows.

    They are killed, with all that they started, when a call fails or takes more than `seconds`, when the pool is
    dropped, and when this process ends or is killed.
    """

    def __init__(self, scorer: Scorer, workers: int, seconds: float | None) -> None:
        self.scorer, self.count, self.seconds = scorer, workers, seconds
        try:
            self.pickled = pickle.dumps(scorer)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise RewardError(
                f"reward {scorer.name!r} cannot be sent to a worker process ({error}); define it at the top level of a "
                "module, or do without workers and a time limit"
            ) from error
        self.workers: list[Worker] = []
        self.last: Collect = list  # of the rows under way, if any
        util.Finalize(self, _kill, (self.workers,), exitpriority=0)  # before multiprocessing waits for them at exit

    def submit(self, rows: Sequence[Row]) -> Collect:
        """Spread rows over the workers. What was under way is collected first, so that answers cannot be mixed up."""
        self.last()
        try:
            self.start()
            size = -(-len(rows) // self.count)
            firsts = range(0, len(rows), size)
            for worker, first in zip(self.workers, firsts, strict=False):
                self.send(worker, (rows[first : first + size], first))
        except BaseException:
            self.stop()
            raise
        self.last = cache(partial(self.collect, rows, firsts))
        return self.last

    def send(self, worker: Worker, part: tuple[Sequence[Row], int]) -> None:
        try:
            if worker.life.poll():
                raise EOFError
            worker.rows.send(part)
        except (EOFError, OSError):
            raise RewardError(
                f"reward {self.scorer.name!r} ended its worker process with {worker.ending()} between two batches"
            ) from None

    def collect(self, rows: Sequence[Row], firsts: range) -> list[float]:
        values = []
        try:
            for worker, first in zip(self.workers, firsts, strict=False):
                part = rows[first : first + firsts.step]
                values += [self.answer(worker, self.scorer.blamed(part, i, first)) for i in range(len(part))]
        except BaseException:
            self.stop()
            raise
        return values

    def answer(self, worker: Worker, call: str) -> float:
        """The next score from a worker, which is in this call."""
        try:
            message = worker.receive(self.seconds)
        except TimeoutError:
            raise RewardError(
                f"reward {self.scorer.name!r} took more than {self.seconds:g} s for {call}; fix the function, or "
                "raise reward.seconds"
            ) from None
        except (EOFError, OSError):
            raise RewardError(
                f"reward {self.scorer.name!r} ended its worker process with {worker.ending()} for {call}"
            ) from None
        if isinstance(message, str):
            raise RewardError(message)
        return float(message)

    def start(self) -> None:
        """Start the workers, if there are none, and wait until they have the function."""
        if self.workers:
            return
        for _ in range(self.count):
            rows, its_rows = SPAWN.Pipe()
            life, its_life = SPAWN.Pipe()
            process = SPAWN.Process(target=_serve, args=(its_rows, its_life, self.pickled), daemon=True)
            self.workers.append(Worker(process, rows, life))
            with its_rows, its_life, stops_blocked():
                process.start()
        for worker in self.workers:
            try:
                problem = worker.receive()
            except (EOFError, OSError):
                problem = (
                    f"it ended with {worker.ending()}; a script that trains with workers must do so under "
                    "`if __name__ == '__main__':`"
                )
            if problem:
                raise RewardError(f"reward {self.scorer.name!r} did not start in a worker process: {problem}")

    def stop(self) -> None:
        self.last = list
        _kill(self.workers)


def _kill(workers: list[Worker]) -> None:
    for worker in workers:
        worker.life.close()
        worker.rows.close()
    while workers:
        process = workers.pop().process
        if process.pid is not None:
            process.join()


def _serve(rows: Connection, life: Connection, pickled: bytes) -> None:
    """A worker: answer each row with its score, or with what is wrong, until it is killed. Its prints are dropped."""
    guard(life, rows)
    own = os.getpid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (1, 2):
        os.dup2(nowhere, standard)
    multiprocessing.current_process().daemon = False  # its function may start processes

    def send(message: float | str) -> None:
        if os.getpid() != own:  # the function has forked, and both return
            os._exit(0)
        rows.send(message)

    try:
        try:
            scorer: Scorer = pickle.loads(pickled)
        except BaseException as error:
            send(f"{type(error).__name__}: {short(error)}")
            return
        send("")
        while True:
            part, first = rows.recv()
            done = 0
            try:
                for done, value in enumerate(scores(scorer, part, first), 1):  # noqa: B007
                    send(value)
            except RewardError as error:
                send(str(error))
            except BaseException as error:  # KeyboardInterrupt, its own: signals are ignored
                where = scorer.blamed(part, done, first)
                send(f"reward {scorer.name!r} raised {type(error).__name__} for {where}: {short(error)}")
    finally:
        os._exit(1)  # without waiting for what the function started
