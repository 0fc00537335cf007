"""The measures of an epoch, and which numbers of it were bad."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

SUM, WEIGHT, BAD = range(3)  # rows of the sums: weighted, of the weights, how often the number was bad
BATCHES, TIMES, FIRST, IN_A_ROW = range(4)  # counts: batches, bad ones, the first bad one, bad ones in a row


@dataclass(frozen=True)
class Fault:
    """Bad numbers since somebody looked."""

    batch: int  # the first batch of the epoch that had one, counted from 1
    batches: int  # how many had
    in_a_row: int  # how many of the latest had, without a good one between
    quantities: list[str]


class Means:
    """Running means of metrics, weighted by batch size, kept where the metrics are: no question to the device.

    A batch with a bad number does not count; which of its numbers were bad is remembered, and which batch it was.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.sums: dict[tuple[str, ...], Tensor] = {}  # by the names added together: (3, M), float64: SUM, WEIGHT, BAD
        self.counts = torch.zeros(4, dtype=torch.long, device=device)  # BATCHES, TIMES, FIRST, IN_A_ROW

    def add(self, metrics: Mapping[str, Tensor], weight: int) -> None:
        names = tuple(metrics)
        if names not in self.sums:
            self.sums[names] = torch.zeros(3, len(names), dtype=torch.double, device=self.device)
        values = torch.stack([value.float() for value in metrics.values()]).double()  # (M,)
        bad = ~values.isfinite()
        counted = torch.where(bad.any(), 0.0, weight).expand_as(values)
        self.sums[names] += torch.stack([values.nan_to_num(0, 0, 0) * counted, counted, bad.double()])
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
            name: total / weight
            for names, sums in self.sums.items()
            for name, total, weight in zip(names, *sums[[SUM, WEIGHT]].tolist(), strict=True)
            if weight
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
