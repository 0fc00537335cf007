"""The metrics of an epoch, averaged over its batches, and which of them were not finite."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

TOTAL, COUNT, BAD = range(3)  # rows of the sums: of tallies, and how often one was bad
BATCHES, TIMES, FIRST, IN_A_ROW = range(4)  # counts: batches, bad ones, the first bad one, bad ones in a row


@dataclass(frozen=True)
class NonFinite:
    """Numbers that were not finite since the last check."""

    batch: int  # the first batch of the epoch that had one, counted from 1
    batches: int  # how many had
    in_a_row: int  # how many of the latest had, without a good one between
    quantities: list[str]


class Averages:
    """Sums of tallies, kept on the device of the tallies: adding to them does not synchronise.

    A batch with a number that is not finite does not count; which numbers and which batch these were is recorded.
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

    def nonfinite(self) -> NonFinite | None:
        """The numbers that were not finite since the last check. Synchronises with the device."""
        _, times, first, row = self.counts.tolist()
        return NonFinite(first, times, row, self.bad()) if first else None

    def bad(self) -> list[str]:
        """Metrics that were not finite numbers."""
        counts = [pair for names, sums in self.sums.items() for pair in zip(names, sums[BAD].tolist(), strict=True)]
        return [name for name, times in counts if times]

    def clear_nonfinite(self) -> None:
        """Forget what was bad, but not how many of the latest batches in a row were."""
        for sums in self.sums.values():
            sums[BAD].zero_()
        self.counts[TIMES : FIRST + 1].zero_()

    def clear(self) -> None:
        """Back to zero, in the same memory: captured programs add to it. Bad batches in a row are still counted."""
        for sums in self.sums.values():
            sums.zero_()
        self.counts[: FIRST + 1].zero_()
