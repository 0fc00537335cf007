"""torchrun whose ranks are forks of a station, too: all of it is torch's but how a rank's process is made."""

import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

from torch.distributed import run
from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler

from stress import station


class Rank:
    """What torchrun needs of subprocess.Popen."""

    def __init__(self, args: list[str], env: Mapping[str, str], outputs: list[int]) -> None:
        self.args, self.returncode = args, None
        place = args.index("-m") + 1
        self.pid = os.fork()
        if self.pid == 0:
            signal.set_wakeup_fd(-1)
            station.become(args[place], args[place + 1 :], Path.cwd(), env, outputs, fresh=False)

    def poll(self) -> Any:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> Any:
        end = time.monotonic() + (timeout or 1e9)
        while self.poll() is None:
            if time.monotonic() > end:
                raise TimeoutExpired(self.args, timeout or 0)
            time.sleep(0.005)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def forked(handler: Any, args: tuple[str, ...], env: dict[str, str]) -> Rank:
    return Rank(list(args), env, [handler._stdout.fileno(), handler._stderr.fileno()])


if __name__ == "__main__":
    SubprocessHandler._popen = forked
    sys.argv[0] = "torchrun"
    run.main()
