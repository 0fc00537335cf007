"""Where the time of a run goes, and on what machine."""

import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import ParamSpec, TypeVar

import torch

from seqmixer.algorithms import Algorithm
from seqmixer.rewards import Pending, Startable, begin, combined
from seqmixer.types import Reward, Rollout

P = ParamSpec("P")
Result = TypeVar("Result")


class Clock:
    """Seconds by name. `sample` and `reward` are what an algorithm's generate and reward took."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.open: dict[str, float] = {}  # what is being timed, and since when

    @contextmanager
    def time(self, name: str) -> Iterator[None]:
        self.open[name] = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.so_far()[name]
            del self.open[name]

    def so_far(self) -> dict[str, float]:
        """The seconds, with those of what is being timed."""
        now = time.perf_counter()
        return self.seconds | {name: self.seconds.get(name, 0.0) + now - since for name, since in self.open.items()}

    def timed(self, name: str, function: Callable[P, Result]) -> Callable[P, Result]:
        def run(*args: P.args, **kwargs: P.kwargs) -> Result:
            with self.time(name):
                return function(*args, **kwargs)

        return run

    def timed_reward(self, reward: Reward) -> Startable:
        """A reward that is timed while it is started and while its result is waited for."""

        def start(rollout: Rollout) -> Pending:
            return self.timed("reward", self.timed("reward", begin)(reward, rollout))

        return combined(Startable(start), [reward])

    @contextmanager
    def watch(self, algorithm: Algorithm) -> Iterator[None]:
        """Time an algorithm's generate and reward for a while."""
        generate, reward = algorithm.generate, algorithm.reward
        algorithm.generate = self.timed("sample", generate)
        algorithm.reward = reward and self.timed_reward(reward)
        try:
            yield
        finally:
            algorithm.generate, algorithm.reward = generate, reward

    def split(self) -> dict[str, float]:
        """Where the time went. The forward pass without its sampling and reward is `score`; `rest` is what training
        took beside them: cutting batches, and waiting for a device that replays captured steps."""
        parts = dict(self.seconds)
        if "forward" in parts:
            parts["score"] = parts.pop("forward") - parts.get("sample", 0.0) - parts.get("reward", 0.0)
        if "train" in parts:
            steps = ("sample", "reward", "score", "backward", "update")
            parts["rest"] = parts.pop("train") - sum(parts.get(name, 0.0) for name in steps)
        return {name: round(seconds, 3) for name, seconds in parts.items()}


@cache
def machine() -> str:
    """The machine, in words."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    name = f"{torch.get_device_module(accelerator).get_device_name(accelerator)}, " if accelerator else ""
    return f"{name}{os.cpu_count()} cores, {platform.system()} {platform.machine()}, torch {torch.__version__}"
