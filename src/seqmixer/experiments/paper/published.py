"""The paper's own numbers, read from published.toml, which says where each is from."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqmixer import files

FILE = Path(__file__).with_name("published.toml")


@dataclass(frozen=True)
class Published:
    """What the paper reports of one task."""

    data: str
    metric: str
    where: str  # the scores are from
    scores: Mapping[str, float]  # by method
    schedule: Mapping[str, Any]  # xent_epochs, mixed_epochs, delta; where
    cross: Mapping[str, Any]  # by metric, then by method; where. Empty but for summarization


def published(task: str) -> Published:
    """
    >>> published("translation").scores["mixer"]
    20.73
    """
    entry = files.read_toml(FILE)[task]
    return Published(
        entry["data"], entry["metric"], entry["where"], entry["scores"], entry["schedule"], entry.get("cross", {})
    )
