"""What follows from a stage and the settings, one thing at a time."""

import pytest

from seqmixer.algorithms import Stage
from seqmixer.config import TrainingConfig
from seqmixer.training.regime import Regime

XENT = Stage("XENT", program="xent")
REWARDED = Stage("REINFORCE", program="reinforce", rewarded=True)
PLAIN = Regime(rate=None, dropout=True, decays=False, patience=None, sets_reference=False)
SAMPLED = Regime(rate=None, dropout=False, decays=False, patience=None, sets_reference=True)


@pytest.mark.parametrize(
    ("settings", "xent", "rewarded"),
    [
        ({}, {}, {}),
        ({"rl_lr": 0.5}, {}, {"rate": 0.5}),
        ({"rl_dropout": True}, {}, {"dropout": True}),
        ({"decay": 1.2}, {"decays": True}, {"decays": True}),
        ({"decay": 1.2, "rl_lr": 0.5}, {"decays": True}, {"rate": 0.5}),
        ({"patience": 3}, {}, {"patience": 3}),
    ],
)
def test_a_setting_changes_what_it_names_and_nothing_else(settings, xent, rewarded):
    made = TrainingConfig(**settings)
    assert vars(Regime.of(XENT, made)) == vars(PLAIN) | xent
    assert vars(Regime.of(REWARDED, made)) == vars(SAMPLED) | rewarded
