"""Weighted sums of rewards and of metrics, as a config has them: 0.5*bleu + 0.5*rouge_l - 0.1*my_reward:length."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from seqmixer.errors import ConfigError
from seqmixer.functions import is_path
from seqmixer.rewards.chrf import CHRF
from seqmixer.rewards.cider import CIDER
from seqmixer.rewards.metric import METRICS, Metric, mean_of, uncounted
from seqmixer.rewards.readable import READABLE
from seqmixer.rewards.starting import Pending, Startable, begin, combined
from seqmixer.types import Reward, Rollout

TERM = re.compile(r"\s*([+-]?)\s*(?:(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)\s*\*\s*)?([A-Za-z_][\w.:]*\+{0,2})\s*(?=[+-]|$)")

BUILT_IN: Mapping[str, Metric] = {**METRICS, CIDER.name: CIDER, **CHRF, **READABLE}  # all that have a name

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


def weighted_metric(name: str, terms: Sequence[tuple[float, Metric]]) -> Metric:
    """The sum of metrics times their weights, each as a share of its highest score: in units of the reward.

    A row is the rows of the parts side by side, so that any sample of sentences can be scored.
    """
    sizes = [metric.size for _, metric in terms]

    def statistics(rollout: Rollout) -> Tensor:
        return torch.cat([metric.statistics(rollout) for _, metric in terms], -1)  # (B, S)

    def summed(score: Callable[[Metric, Tensor], Tensor], rows: Tensor) -> Tensor:
        parts = zip(terms, rows.split(sizes, -1), strict=True)
        return torch.stack([weight * score(metric, part) / metric.highest for (weight, metric), part in parts]).sum(0)

    return Metric(
        name,
        combined(statistics, [metric.statistics for _, metric in terms]),
        partial(summed, lambda metric, rows: metric.corpus(rows)),
        signature=sum_signature([(weight, metric.signature) for weight, metric in terms]),
        size=sum(sizes),
        highest=1.0,
        sentence=weighted([(weight, metric.reward) for weight, metric in terms]),
        alone=partial(summed, lambda metric, rows: metric.of_each(rows)),
    )


def summed_metric(text: str, part: Callable[[str], Metric]) -> Metric:
    """A metric, or a weighted sum of some, each made of its name by `part`."""
    terms = [(weight, part(name)) for weight, name in parse(text)]
    return terms[0][1] if len(terms) == 1 and terms[0][0] == 1 else weighted_metric(text, terms)


def of_counts(text: str) -> Metric:
    """The metric of this name for counts that are there: neither data nor a user's code is needed to score them.

    >>> of_counts("0.5*exact + 0.5*mine:f").corpus(torch.tensor([[1.0, 0.2], [0.0, 0.4]]))
    tensor(0.4000)
    """
    return summed_metric(text, lambda name: mean_of(name, uncounted) if is_path(name) else BUILT_IN[name])


def sum_signature(terms: Sequence[tuple[float, str]]) -> str:
    """
    >>> sum_signature([(0.5, "exact"), (-1.0, "mine:f|mean:sentences")])
    '0.5*(exact) - 1*(mine:f|mean:sentences)'
    """
    text = " ".join(f"{'-' if weight < 0 else '+'} {abs(weight):g}*({signature})" for weight, signature in terms)
    return text.removeprefix("+ ")
