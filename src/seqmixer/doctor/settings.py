"""Settings that are valid one by one, but work against each other. The reasons are in README.md and docs/."""

import math
from collections.abc import Iterator

from seqmixer.config import Config
from seqmixer.doctor.findings import Check, Finding
from seqmixer.rewards import parse

RECALLS = ("rouge1", "rouge2")  # no word costs anything
SAME = {"bleu_mean": "bleu"}  # a smoothed reward of what is reported


def examine_settings(config: Config, length: int | None) -> Check:
    """`length` is T; None where the data could not be read."""
    found = [
        *start(config),
        *schedule(config),
        *rates(config),
        *decay(config, length),
        *patience(config),
        *rewards(config),
    ]
    return Check("settings", found or [Finding("ok", "every setting is valid, and none works against another")])


def start(config: Config) -> Iterator[Finding]:
    """REINFORCE needs a model that can write."""
    algorithm = config.algorithm
    if algorithm.starts_rewarded and config.training.start is None and config.model.pretrained is None:
        what = f"{algorithm.name} begins from a random model"
        why = "that does not train (Sec. 4.4 of the paper)"
        change = "algorithm.xent_epochs" if algorithm.annealed else "algorithm.anneal = true"
        yield Finding(
            "problem", what, why, f"name the run of a cross-entropy model with training.start, or set {change}"
        )


def schedule(config: Config) -> Iterator[Finding]:
    """Whether sequence-level training takes place at all."""
    algorithm, epochs = config.algorithm, config.training.epochs
    if not (algorithm.rewarded and algorithm.annealed):
        return
    if algorithm.mixed_epochs == 0:
        why = f"{algorithm.name} is then cross entropy, and nothing is rewarded"
        yield Finding("warning", "algorithm.mixed_epochs is 0", why, "raise it")
    elif epochs is not None and epochs <= algorithm.xent_epochs:
        what = f"training.epochs = {epochs} ends the run within the {algorithm.xent_epochs} epochs of cross entropy"
        yield Finding("warning", what, "no word is ever rewarded", "raise training.epochs, or leave it out")
    if getattr(algorithm, "reinforce_weight", 1) == 0:
        yield Finding("warning", "algorithm.reinforce_weight is 0", "the reward then teaches nothing", "raise it")


def rates(config: Config) -> Iterator[Finding]:
    """From XENT to REINFORCE the learning rate should fall."""
    training = config.training
    if config.algorithm.starts_rewarded or not config.algorithm.rewarded:
        return
    works = "a third to a twentieth of it is what works"
    advice = f"set training.rl_lr between {training.lr / 20:g} and {training.lr / 3:.2g}"
    if training.rl_lr is None:
        why = f"the RL stages go on with the rate of cross entropy, and {works}"
        yield Finding("warning", "training.rl_lr is not set", why, advice)
    elif training.rl_lr >= training.lr:
        what = f"training.rl_lr = {training.rl_lr:g} is not below training.lr = {training.lr:g}"
        yield Finding("warning", what, works, advice)


def decay(config: Config, length: int | None) -> Iterator[Finding]:
    """The released rule divides the rate when perplexity does not improve, and ends the run when it is small."""
    training, algorithm = config.training, config.algorithm
    if training.decay == 1:
        return
    if training.lr < training.min_lr:
        what = f"training.lr = {training.lr:g} is below training.min_lr = {training.min_lr:g}"
        why = "the run ends the first time that perplexity does not improve"
        yield Finding("warning", what, why, "lower training.min_lr")
    own = training.rl_lr is not None  # which stays
    if not algorithm.rewarded or own or length is None or not training.min_lr:
        return
    lasts = math.ceil(math.log(max(training.lr / training.min_lr, 1)) / math.log(training.decay))
    paid = sum(s < length for s in algorithm.schedule(length))
    if lasts < paid:
        what = f"training.decay = {training.decay:g} may end the run after {lasts} of {paid} RL epochs"
        why = "these seldom improve perplexity, so the rate falls each time"
        yield Finding("note", what, why, "lower training.min_lr, or set training.decay = 1")


def patience(config: Config) -> Iterator[Finding]:
    """Each return to the best model halves the rate, and a rate below min_lr ends the run."""
    training = config.training
    rate = training.rl_lr or training.lr
    if training.patience is not None and config.algorithm.rewarded and rate / 2 < training.min_lr:
        what = f"training.patience ends the run the first time: half of {rate:g} is below training.min_lr"
        yield Finding("note", what, "it never returns to the best model to resume from there", "lower training.min_lr")


def rewards(config: Config) -> Iterator[Finding]:
    """What is rewarded, against what is reported."""
    if not config.algorithm.rewarded:
        return
    terms = parse(config.reward.name)
    names = [name for weight, name in terms if weight > 0]
    metric = config.metrics[0]
    if metric not in (config.reward.name, *(SAME.get(name, name) for name in names)):
        what = f"the reward is {config.reward.name}, but {metric} picks the best model and is reported"
        why = "a model learns what is rewarded: in the paper, one rewarded by ROUGE-2 lost BLEU"
        yield Finding("warning", what, why, f"set evaluation.metrics or reward.name = {metric!r} if you can")
    if all(name in RECALLS for _, name in terms):
        what = f"the reward {config.reward.name} has no length penalty"
        why = "it is a recall, and more words never cost"
        yield Finding("warning", what, why, f"use {terms[0][1]}_f, or add ' + 0.2*length'")
