"""Processes that score sentences with a user's function, so that it cannot hold up the program, or hang it."""

import os
import pickle
import sys
import weakref
from collections.abc import Callable, Sequence
from functools import cache, partial
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

from seqmixer.errors import RewardError
from seqmixer.functions.kinds import Row, Scorer, scores
from seqmixer.workers import SPAWN, deaf, live_with_parent

Collect = Callable[[], list[float]]
Worker = tuple[SpawnProcess, Connection]


class Pool:
    """`submit` rows and collect their scores later. The processes start with the first rows.

    They are killed when a call fails or takes more than `seconds`, when the pool is dropped, and at exit; they
    end themselves when this process was killed.
    """

    def __init__(self, scorer: Scorer, workers: int, seconds: float | None) -> None:
        self.scorer, self.count, self.seconds = scorer, workers, seconds
        self.folder = os.getcwd()  # where the function's module may have been found
        try:
            self.pickled = pickle.dumps(scorer)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise RewardError(
                f"reward {scorer.name!r} cannot be sent to a worker process ({error}); define it at the top level of a "
                "module, or do without workers and a time limit"
            ) from error
        self.workers: list[Worker] = []
        self.last: Collect = list  # of the rows under way, if any
        weakref.finalize(self, _kill, self.workers)

    def submit(self, rows: Sequence[Row]) -> Collect:
        """Spread rows over the workers. What was under way is collected first, so that answers cannot be mixed up."""
        self.last()
        try:
            self.start()
            size = -(-len(rows) // self.count)
            firsts = range(0, len(rows), size)
            for (_, connection), first in zip(self.workers, firsts, strict=False):
                connection.send((rows[first : first + size], first))
        except ConnectionError:
            self.stop()
            raise RewardError(f"reward {self.scorer.name!r} lost a worker process between two batches") from None
        except BaseException:
            self.stop()
            raise
        self.last = cache(partial(self.collect, rows, firsts))
        return self.last

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
        process, connection = worker
        try:
            if not connection.poll(self.seconds):
                raise RewardError(
                    f"reward {self.scorer.name!r} took more than {self.seconds:g} s for {call}; mend the function, or "
                    "raise reward.seconds"
                )
            message = connection.recv()
        except (EOFError, ConnectionError):
            process.join()
            code = process.exitcode
            raise RewardError(
                f"reward {self.scorer.name!r} ended its worker process with exit code {code} for {call}"
            ) from None
        if isinstance(message, str):
            raise RewardError(message)
        return float(message)

    def start(self) -> None:
        """Make the workers, if there are none, and wait until they have the function."""
        if self.workers:
            return
        for _ in range(self.count):
            ours, theirs = SPAWN.Pipe()
            process = SPAWN.Process(target=_serve, args=(theirs, self.folder, self.pickled), daemon=True)
            self.workers.append((process, ours))
            with deaf():
                process.start()
            theirs.close()
        for process, connection in self.workers:
            try:
                problem = connection.recv()
            except (EOFError, ConnectionError):
                process.join()
                problem = (
                    f"it ended with exit code {process.exitcode}; a script that trains with workers must do so under "
                    "`if __name__ == '__main__':`"
                )
            if problem:
                raise RewardError(f"reward {self.scorer.name!r} did not start in a worker process: {problem}")

    def stop(self) -> None:
        self.last = list
        _kill(self.workers)


def _kill(workers: list[Worker]) -> None:
    while workers:
        process, connection = workers.pop()
        connection.close()
        if process.pid is not None:
            process.kill()
            process.join()


def _serve(connection: Connection, folder: str, pickled: bytes) -> None:
    """A worker: answer each row with its score, or with what is wrong, until the other end is closed."""
    live_with_parent()
    sys.path.insert(0, folder)
    try:
        scorer: Scorer = pickle.loads(pickled)
    except Exception as error:
        connection.send(f"{type(error).__name__}: {error}")
        return
    connection.send("")
    while True:
        try:
            rows, first = connection.recv()
        except EOFError:
            return
        try:
            for value in scores(scorer, rows, first):
                connection.send(value)
        except RewardError as error:
            connection.send(str(error))
