"""The score of the best grammatical outputs: what a predictor gets that knows the true distribution of references."""

from collections.abc import Sequence

import torch
from torch import Tensor

from seqmixer.build import Metrics, build_task
from seqmixer.config import Config
from seqmixer.data import in_order, toy
from seqmixer.types import Rollout


def best_score(config: Config) -> float:
    """The test score of writing, for each source, the sentence with the highest expected reward."""
    task = build_task(config.data)
    metrics, vocab = Metrics(config, task), task.target_vocab
    metric, reward = metrics.chosen[0], metrics.reward

    def rewards(hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
        return reward(Rollout(rows(hypotheses), rows(references).unsqueeze(1))).tolist()

    def rows(sentences: Sequence[str]) -> Tensor:
        ids = [torch.tensor(vocab.encode(sentence)) for sentence in sentences]
        return torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)  # (n, longest); PAD is 0

    words = rows(toy.best_outputs(task.test, rewards))
    (everything,) = in_order(task.test, len(task.test), task.length)
    return float(metric.corpus(metric.statistics(everything.rollout(words))))
