"""The measures of an epoch, and which numbers of it were bad."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

TOTAL, COUNT, BAD = range(3)  # rows of the sums: of tallies, and how often one was bad
BATCHES, TIMES, FIRST, IN_A_ROW = range(4)  # counts: batches, bad ones, the first bad one, bad ones in a row


@dataclass(frozen=True)
class Fault:
    """Bad numbers since somebody looked."""

    batch: int  # the first batch of the epoch that had one, counted from 1
    batches: int  # how many had
    in_a_row: int  # how many of the latest had, without a good one between
    quantities: list[str]


class Means:
    """Sums of tallies, kept where the tallies are: no question to the device.

    A batch with a bad number does not count; which of its numbers were bad is remembered, and which batch it was.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.sums: dict[tuple[str, ...], Tensor] = {}  # by the names added together: (3, M), float64: TOTAL, COUNT, BAD
        self.counts = torch.zeros(4, dtype=torch.long, device=device)  # BATCHES, TIMES, FIRST, IN_A_ROW

    def add(self, metrics: Mapping[str, Tensor]) -> None:
        names = tuple(metrics)
        if names not in self.sums:
            self.sums[names] = torch.zeros(3, len(names), dtype=torch.double, device=self.device)
        tallies = torch.stack([*metrics.values()]).double()  # (M, 2)
        bad = ~tallies.isfinite().all(-1)  # (M,)
        good = torch.where(bad.any(), 0.0, tallies)
        self.sums[names] += torch.cat([good, bad.unsqueeze(-1)], -1).t()
        self.count(bad.any())

    def count(self, bad: Tensor) -> None:
        seen, times, first, row = self.counts.unbind()
        seen += 1
        times += bad
        first += seen * (bad & (first == 0))
        row += 1
        row *= bad

    def values(self) -> dict[str, float]:
        """The mean of each metric that counted."""
        return {
            name: total / count
            for names, sums in self.sums.items()
            for name, total, count in zip(names, *sums[[TOTAL, COUNT]].tolist(), strict=True)
            if count
        }

    def fault(self) -> Fault | None:
        """What was not a finite number since it was forgiven. It waits for the device."""
        _, times, first, row = self.counts.tolist()
        return Fault(first, times, row, self.bad()) if first else None

    def bad(self) -> list[str]:
        """Metrics that were not finite numbers."""
        counts = [pair for names, sums in self.sums.items() for pair in zip(names, sums[BAD].tolist(), strict=True)]
        return [name for name, times in counts if times]

    def forgive(self) -> None:
        """Forget what was bad, but not that the latest batches were."""
        for sums in self.sums.values():
            sums[BAD].zero_()
        self.counts[TIMES : FIRST + 1].zero_()

    def clear(self) -> None:
        """Begin anew, in the same memory: captured programs add to it. Bad batches in a row go on being counted."""
        for sums in self.sums.values():
            sums.zero_()
        self.counts[: FIRST + 1].zero_()
