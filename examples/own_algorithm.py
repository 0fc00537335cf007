"""An algorithm of your own, minimum risk over a few samples; a config names it own_algorithm:Risk."""

import sys
from typing import Any

from pydantic import Field
from torch import Tensor

from seqmixer import Config, train
from seqmixer.algorithms import Candidates, Learnt, Sampled, SampledSettings
from seqmixer.types import Batch, Reward


class RiskSettings(SampledSettings):
    sharpness: float = Field(1.0, gt=0)


class Risk(Sampled):
    """- sum_i q_i r_i  over the samples of a source, with  q_i = p(y_i)^a / sum_j p(y_j)^a  (Shen et al., 2016)."""

    Settings, label = RiskSettings, "RISK"

    def __init__(self, reward: Reward, sharpness: float, **rest: Any) -> None:
        super().__init__(reward, **rest)
        self.sharpness = sharpness

    def learn(self, batch: Batch, candidates: Candidates, h: Tensor, log_p: Tensor) -> Learnt:
        q = (self.sharpness * candidates.sentences(log_p)).softmax(-1)  # (B, k)
        return Learnt(-candidates.k * (q * self.worth(candidates, log_p)).sum())


if __name__ == "__main__":
    epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    both = {"model": {"hidden": 64}, "training": {"epochs": epochs, "batch_size": 64, "lr": 0.004}}
    train(Config.parse({"name": "xent", "algorithm": {"name": "xent"}, **both}))
    both["training"] |= {"lr": 0.001, "start": "runs/xent"}
    run = train(Config.parse({"name": "risk", "algorithm": {"name": "own_algorithm:Risk", "samples": 4}, **both}))
    print(run.evaluate().score)
