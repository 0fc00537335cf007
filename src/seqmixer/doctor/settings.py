"""Settings that are valid one by one, but work against each other. The reasons are in README.md and docs/."""

import math
from collections.abc import Iterator

from seqmixer.config import Config
from seqmixer.doctor.findings import Finding, note, problem, warning
from seqmixer.rewards import BUILT_IN, parse


def conflicts(config: Config, length: int | None) -> Iterator[Finding]:
    """`length` is T; None where the data could not be read."""
    algorithm, training = config.algorithm, config.training
    name = algorithm.name
    if algorithm.starts_rewarded and training.start is None and config.model.pretrained is None:
        change = "algorithm.xent_epochs" if algorithm.annealed else "algorithm.anneal = true"
        advice = f"name the run of a cross-entropy model with training.start, or set {change}"
        yield problem(f"{name} begins from a random model", "that does not train (Sec. 4.4 of the paper)", advice)
    if algorithm.rewarded and algorithm.annealed:
        if algorithm.mixed_epochs == 0:
            why = f"{name} is then cross entropy, and nothing is rewarded"
            yield warning("algorithm.mixed_epochs is 0", why, "raise it")
        elif training.epochs is not None and training.epochs <= algorithm.xent_epochs:
            what = f"training.epochs = {training.epochs} ends the run within the {algorithm.xent_epochs} epochs of"
            yield warning(f"{what} cross entropy", "no word is ever rewarded", "raise training.epochs, or unset it")
        if getattr(algorithm, "reinforce_weight", 1) == 0:
            yield warning("algorithm.reinforce_weight is 0", "the reward then teaches nothing", "raise it")
    yield from rates(config, length)
    if algorithm.rewarded:
        yield from rewards(config)


def rates(config: Config, length: int | None) -> Iterator[Finding]:
    """Learning rates: from XENT to REINFORCE they should fall, and below min_lr they end the run."""
    algorithm, training = config.algorithm, config.training
    lr, rl_lr, least = training.lr, training.rl_lr, training.min_lr
    if algorithm.rewarded and not algorithm.starts_rewarded:
        works = "a third to a twentieth of it is what works"
        advice = f"set training.rl_lr between {lr / 20:g} and {lr / 3:.2g}"
        if rl_lr is None:
            why = f"the RL stages keep the learning rate of cross entropy, and {works}"
            yield warning("training.rl_lr is not set", why, advice)
        elif rl_lr >= lr:
            yield warning(f"training.rl_lr = {rl_lr:g} is not below training.lr = {lr:g}", works, advice)
    if training.decay > 1 and lr < least:
        why = "the run ends the first time that perplexity does not improve"
        yield warning(f"training.lr = {lr:g} is below training.min_lr = {least:g}", why, "lower training.min_lr")
    if training.decay > 1 and least and algorithm.rewarded and rl_lr is None and length is not None:
        lasts = math.ceil(math.log(max(lr / least, 1)) / math.log(training.decay))
        rewarded = sum(s < length for s in algorithm.schedule(length))
        if lasts < rewarded:
            what = f"training.decay = {training.decay:g} may end the run after {lasts} of {rewarded} RL epochs"
            why = "these seldom improve perplexity, so the rate falls each time"
            yield note(what, why, "lower training.min_lr, or set training.decay = 1")
    rate = rl_lr or lr
    if training.patience is not None and algorithm.rewarded and rate / 2 < least:
        what = f"training.patience ends the run the first time: half of {rate:g} is below training.min_lr"
        yield note(what, "it never returns to the best model to resume from there", "lower training.min_lr")


def rewards(config: Config) -> Iterator[Finding]:
    """What is rewarded, against what is reported."""
    reward, metric, terms = config.reward.name, config.metrics[0], parse(config.reward.name)
    known = [BUILT_IN.get(name) for _, name in terms]  # None: a Python function
    smoothed = [each.smooths for each in known if each]
    if metric not in (reward, *smoothed, *(name for weight, name in terms if weight > 0)):
        what = f"the reward is {reward}, but {metric} picks the best model and is reported"
        why = "a model learns what is rewarded, at the cost of other scores"
        yield warning(what, why, f"set evaluation.metrics or reward.name = {metric!r} if you can")
    if all(each and "recall" in each.signature.split("|") for each in known):
        advice = f"use {terms[0][1]}_f, or add ' + 0.2*length'"
        yield warning(f"the reward {reward} has no length penalty", "it is a recall, and more words never cost", advice)
