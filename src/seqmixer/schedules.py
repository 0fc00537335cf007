"""What changes from epoch to epoch, as plain lists and functions: MIXER's s, DAD's coin, the learning rate."""

import math
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TypeVar

Value = TypeVar("Value")
Annealing = Callable[[int, float], float]


def at(schedule: Sequence[Value], epoch: int) -> Value:
    """The value of an epoch; after the last one it stays, as in the released code's last stage.

    >>> at([25, 22], 0), at([25, 22], 7)
    (25, 22)
    """
    return schedule[min(epoch, len(schedule) - 1)]


def forced_words(length: int, delta: int, xent_epochs: int, mixed_epochs: int, to_zero: bool = False) -> list[int]:
    """Algorithm 1: s, the number of words trained with XENT, for each epoch.

    s = T for N^XENT epochs, then T - Delta, T - 2 Delta, ... while s >= 1, for N^XE+R epochs each. With `to_zero`, the
    last stage has s = 0: "we repeat this process until only REINFORCE is used to train the whole sequence" (Sec.
    3.2.2).

    >>> forced_words(length=7, delta=3, xent_epochs=2, mixed_epochs=1)
    [7, 7, 4, 1]
    >>> forced_words(length=7, delta=3, xent_epochs=2, mixed_epochs=1, to_zero=True)
    [7, 7, 4, 1, 0]
    """
    schedule = [length] * xent_epochs
    for s in [*range(length - delta, 0, -delta), *([0] if to_zero else [])]:
        schedule += [s] * mixed_epochs
    return schedule or [length]


def falling_words(length: int, warmup: int, epochs: int) -> list[int]:
    """E2E: s by epoch, T for `warmup` epochs, then evenly down to 1 in the last.

    >>> falling_words(length=10, warmup=2, epochs=5)
    [10, 10, 7, 4, 1]
    """
    falling = max(epochs - warmup, 1)
    return [length] * warmup + [length - round((length - 1) * (i + 1) / falling) for i in range(falling)]


def stages(schedule: Sequence[Value]) -> list[tuple[Value, int, int]]:
    """A schedule as (value, first epoch, last epoch) of each stretch of equal values, epochs counted from 1.

    >>> stages([7, 7, 4, 1])
    [(7, 1, 2), (4, 3, 3), (1, 4, 4)]
    """
    result, first = [], 1
    for value, group in groupby(schedule):
        last = first + len(list(group)) - 1
        result.append((value, first, last))
        first = last + 1
    return result


def linear(i: int, k: float) -> float:
    """Scheduled sampling's linear decay: 1 - i / k, never below 0."""
    return max(0.0, 1 - i / k)


def exponential(i: int, k: float) -> float:
    """Scheduled sampling's exponential decay: k^i, with k < 1."""
    return k**i


def inverse_sigmoid(i: int, k: float) -> float:
    """Scheduled sampling's inverse sigmoid decay: k / (k + exp(i / k)), with k >= 1."""
    return k / (k + math.exp(i / k))


def truth_probability(annealing: Annealing, k: float, warmup: int, epochs: int, floor: float) -> list[float]:
    """DAD (Sec. 3.1.2): the probability of feeding the reference word, by epoch.

    "At the beginning, the algorithm always chooses the ground truth words": 1 for `warmup` epochs, then annealed.

    >>> truth_probability(linear, k=4, warmup=2, epochs=6, floor=0.5)
    [1.0, 1.0, 1.0, 0.75, 0.5, 0.5]
    """
    annealed = [max(floor, annealing(i, k)) for i in range(max(epochs - warmup, 1))]
    return [1.0] * warmup + annealed


def decayed(rate: float, entropy: float, best: float, factor: float = 1.2, tolerance: float = 1e-4) -> float:
    """The released SGD rule: divide the rate by 1.2 when validation entropy improved by less than 0.01 %.

    >>> decayed(0.2, entropy=2.0, best=3.0), round(decayed(0.2, entropy=3.0, best=3.0), 4)
    (0.2, 0.1667)
    """
    return rate if entropy < best * (1 - tolerance) else rate / factor
