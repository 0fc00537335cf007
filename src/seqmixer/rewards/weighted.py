"""Sums of rewards, as a config writes them: 0.5*bleu + 0.5*rouge_l - 0.1*my_reward:length."""

import re
from collections.abc import Sequence

import torch
from torch import Tensor

from seqmixer.errors import ConfigError
from seqmixer.rewards.starting import Pending, Startable, begin, combined
from seqmixer.types import Reward, Rollout

TERM = re.compile(r"\s*([+-]?)\s*(?:(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)\s*\*\s*)?([A-Za-z_][\w.:]*\+{0,2})\s*(?=[+-]|$)")

LARGEST = 1e6  # weight: more than makes sense, and far from where float32 ends


def parse(text: str) -> list[tuple[float, str]]:
    """The weights and names of a sum.

    >>> parse("bleu")
    [(1.0, 'bleu')]
    >>> parse("0.5*bleu + 2*mine:price - rouge_l")
    [(0.5, 'bleu'), (2.0, 'mine:price'), (-1.0, 'rouge_l')]
    """
    terms, place = [], 0
    while place < len(text):
        term = TERM.match(text, place)
        if term is None or (place > 0 and not term[1]):
            break
        weight = float(f"{term[1]}{term[2] or 1}")
        if abs(weight) > LARGEST:
            raise ConfigError(f"reward {text!r}: a weight of {weight:g}; allowed are weights up to {LARGEST:g}")
        terms.append((weight, term[3]))
        place = term.end()
    if place < len(text) or not terms:
        raise ConfigError(
            f"reward {text!r}: no sum of rewards from {text[place:]!r} on; write for example '0.5*bleu + 0.5*rouge_l'"
        )
    return terms


def weighted(terms: Sequence[tuple[float, Reward]]) -> Startable:
    """The sum of rewards times their weights. All are begun before any is waited for."""

    def start(rollout: Rollout) -> Pending:
        pending = [(weight, begin(reward, rollout)) for weight, reward in terms]

        def collect() -> Tensor:
            return torch.stack([weight * wait() for weight, wait in pending]).sum(0)  # (terms, B) -> (B,)

        return collect

    return combined(Startable(start), [reward for _, reward in terms])
