"""An algorithm of your own: minimum risk over a few samples, with a setting, named in a config as own_algorithm:Risk."""

import sys
from typing import ClassVar

from pydantic import Field
from torch import Tensor

from seqmixer import Config, train
from seqmixer.algorithms import Candidates, Learnt, Parts, Sampled, SampledSettings
from seqmixer.types import Batch, tally


class RiskSettings(SampledSettings):
    sharpness: float = Field(0.1, gt=0)
    """Sentence probabilities are raised to this power before they are normalised over the candidates."""


class Risk(Sampled):
    """Expected risk (Shen et al. 2016):  - sum_i q_i r_i,  q_i = p(y_i)^a / sum_j p(y_j)^a  over a source's samples."""

    Settings = RiskSettings
    label: ClassVar[str] = "RISK"

    @classmethod
    def of(cls, settings: RiskSettings, parts: Parts) -> "Risk":
        made = cls(parts.reward, samples=settings.samples, generate=parts.generate)
        made.sharpness = settings.sharpness
        return made

    def learn(self, batch: Batch, candidates: Candidates, h: Tensor, log_p: Tensor) -> Learnt:
        sentence = log_p.where(candidates.generated, 0).sum(-1).view(-1, candidates.k)  # (B, k)
        r = candidates.reward().view_as(sentence)
        risk = -((self.sharpness * sentence).softmax(-1) * r).sum(-1)  # (B,)
        return Learnt(candidates.k * risk.sum(), {"reward": tally(r.sum(), 0 * r.sum() + r.numel())})


if __name__ == "__main__":
    epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    algorithm = {"name": "own_algorithm:Risk", "samples": 4, "sharpness": 0.5, "xent_epochs": epochs}
    model, training = {"hidden": 64}, {"epochs": epochs, "batch_size": 64, "lr": 1e-3, "start": sys.argv[2]}
    run = train(Config.parse({"name": "risk", "algorithm": algorithm, "model": model, "training": training}))
    print(run.evaluate().score)
