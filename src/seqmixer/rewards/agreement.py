"""Agreement among the sentences for one source: each is compared with the rest instead of with references."""

from dataclasses import replace

import torch
from torch import Tensor

from seqmixer.rewards.starting import combined
from seqmixer.types import Reward, Rollout

PLACES = 2**22  # pairs of words that are compared at a time


def consensus(reward: Reward) -> Reward:
    """The mean utility of minimum Bayes risk decoding (Kumar and Byrne 2004; by samples, Eikema and Aziz 2020).

    u_i = 1/(k-1) sum_{j != i} reward(y_i, y_j),   the k sentences of the rollout for a source

    Its references are not looked at. A sentence that is alone has 0.

    >>> import torch
    >>> words = torch.tensor([[4, 5, 2], [4, 5, 2], [6, 7, 2]])
    >>> consensus(lambda rollout: (rollout.words == rollout.references[:, 0]).float().mean(-1))(
    ...     Rollout(words, words.unsqueeze(1), k=3)
    ... )
    tensor([0.6667, 0.6667, 0.3333])
    """

    def utility(rollout: Rollout) -> Tensor:
        n, T = rollout.words.shape
        others = rollout.k - 1
        if not others:
            return torch.zeros(n, device=rollout.words.device)
        pair = torch.arange(n * others, device=rollout.words.device)
        i, place = pair // others, pair % others  # each sentence, and the one that it is compared with
        own = i % rollout.k
        j = i - own + place + (place >= own)
        source = rollout.source
        parts = []
        for rows in pair.split(max(1, PLACES // T**2)):
            parts.append(
                reward(
                    replace(
                        rollout,
                        words=rollout.words[i[rows]],
                        references=rollout.words[j[rows]].unsqueeze(1),  # (rows, 1, T)
                        source=None if source is None else source[i[rows]],
                        meta=(),
                        k=others,
                    )
                )
            )
        return torch.cat(parts).view(n, others).mean(-1)

    return combined(utility, [reward])
