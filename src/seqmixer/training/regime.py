"""How the epochs of a stage are trained, which depends on whether it learns from rewards."""

from dataclasses import dataclass

from seqmixer.algorithms import Stage
from seqmixer.config import TrainingConfig


@dataclass(frozen=True)
class Regime:
    """How an epoch is trained."""

    rate: float | None  # of a fresh optimiser where the stage begins, from the best model so far; None: all stays
    dropout: bool
    decays: bool  # whether a plateau of validation perplexity lowers the rate
    patience: int | None  # epochs without a better model before the best one is restored; None: never
    sets_reference: bool  # whether the model where the stage begins is kept as a reference

    @classmethod
    def of(cls, stage: Stage, settings: TrainingConfig) -> "Regime":
        if not stage.rewarded:
            return cls(None, True, decays=settings.decay > 1, patience=None, sets_reference=stage.sets_reference)
        return cls(
            rate=settings.rl_lr,
            dropout=settings.rl_dropout,  # off, words are sampled from the distribution that is scored (Eq. 11)
            decays=settings.decay > 1 and settings.rl_lr is None,  # rewards seldom lower perplexity
            patience=settings.patience,
            sets_reference=True,
        )
