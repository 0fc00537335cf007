import pytest

from seqmixer.config import Config
from seqmixer.doctor.settings import conflicts
from seqmixer.settings import assign

GOOD = ("training.rl_lr=0.0002", "algorithm.name=mixer")


def said(*overrides, length=10):
    values = {}
    for override in (*GOOD, *overrides):
        assign(values, override)
    return [(finding.level, str(finding)) for finding in conflicts(Config.parse(values), length)]


def test_settings_that_go_together_are_left_alone():
    assert said() == []


@pytest.mark.parametrize(
    ("overrides", "level", "line"),
    [
        (
            ["algorithm.xent_epochs=0"],
            "problem",
            "mixer begins from a random model: that does not train (Sec. 4.4 of the paper); name the run of a cross-entropy model "
            "with training.start, or set algorithm.xent_epochs",
        ),
        (
            ["algorithm.name=reinforce"],
            "problem",
            "reinforce begins from a random model: that does not train (Sec. 4.4 of the paper); name the run of a cross-entropy "
            "model with training.start, or set algorithm.anneal = true",
        ),
        (
            ["training.patience=3", "training.rl_lr=0.00015"],
            "note",
            "training.patience ends the run the first time: half of 0.00015 is below training.min_lr: it never returns to "
            "the best model to resume from there; lower training.min_lr",
        ),
        (
            ["algorithm.mixed_epochs=0"],
            "warning",
            "algorithm.mixed_epochs is 0: mixer is then cross entropy, and nothing is rewarded; raise it",
        ),
        (
            ["training.epochs=20"],
            "warning",
            "training.epochs = 20 ends the run within the 20 epochs of cross entropy: no word is ever rewarded; raise "
            "training.epochs, or unset it",
        ),
        (
            ["algorithm.reinforce_weight=0"],
            "warning",
            "algorithm.reinforce_weight is 0: the reward then teaches nothing; raise it",
        ),
        (
            ["training.rl_lr=0.002"],
            "warning",
            "training.rl_lr = 0.002 is not below training.lr = 0.001: a third to a twentieth of it is what works; set "
            "training.rl_lr between 5e-05 and 0.00033",
        ),
        (
            ["training.decay=1.2", "training.lr=5e-5", "training.rl_lr=1e-5"],
            "warning",
            "training.lr = 5e-05 is below training.min_lr = 0.0001: the run ends the first time that perplexity does not "
            "improve; lower training.min_lr",
        ),
        (
            ["reward.name=rouge_l", 'evaluation.metrics=["bleu"]'],
            "warning",
            "the reward is rouge_l, but bleu picks the best model and is reported: a model learns what is rewarded, at "
            "the cost of other scores; set evaluation.metrics or reward.name = 'bleu' if you can",
        ),
        (
            ["reward.name=rouge2", 'evaluation.metrics=["rouge2"]'],
            "warning",
            "the reward rouge2 has no length penalty: it is a recall, and more words never cost; use rouge2_f, or add "
            "' + 0.2*length'",
        ),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, list) else "",
)
def test_settings_that_work_against_each_other(overrides, level, line):
    assert (level, line) in said(*overrides)
    assert len(said(*overrides)) <= 2


def test_a_rate_that_decays_may_end_the_stages_that_pay_unless_they_have_their_own():
    line = (
        "training.decay = 1.2 may end the run after 13 of 25 RL epochs: these seldom improve perplexity, so "
        "the rate falls each time; lower training.min_lr, or set training.decay = 1"
    )
    without = Config.parse({"algorithm": {"name": "mixer"}, "training": {"decay": 1.2}})  # 1e-3 to 1e-4: 1.2 ** 13
    assert line in map(str, conflicts(without, 10))
    assert said("training.decay=1.2") == said()


def test_a_rate_that_is_not_set():
    assert str(next(conflicts(Config(), 10))) == (
        "training.rl_lr is not set: the RL stages keep the learning rate of cross entropy, and a third to a twentieth of it is what "
        "works; set training.rl_lr between 5e-05 and 0.00033"
    )


@pytest.mark.parametrize(
    "overrides",
    [
        ["algorithm.name=reinforce", "training.start=runs/xent"],  # the rate is training.lr, and it does not fall
        ["algorithm.name=reinforce", "model.name=huggingface", "model.path=t5"],  # not a random model
        ["algorithm.name=xent", "reward.name=rouge2"],  # nothing is paid
        ["reward.name=bleu_mean"],
        ["reward.name=0.5*bleu + 0.5*rouge2"],
        ["reward.name=rouge2 - 0.1*mine:length", 'evaluation.metrics=["rouge2"]'],
        ["training.epochs=21"],
    ],
)
def test_what_is_meant_is_no_finding(overrides):
    assert said(*overrides) == []
