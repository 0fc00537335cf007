"""[algorithm] to an algorithm."""

from typing import assert_never

from torch import nn

from seqmixer import schedules
from seqmixer.algorithms import E2E, Algorithm, Dad, LeaveOneOut, LinearBaseline, Mixer, Reinforce, StepBaseline, Xent
from seqmixer.config import AlgorithmConfig, Config
from seqmixer.decoding import fast, greedy, sample
from seqmixer.types import Reward


def build_algorithm(config: AlgorithmConfig, reward: Reward, features: int, length: int) -> Algorithm:
    forced = build_schedule(config, length)
    match config.baseline:
        case "linear":
            baseline: nn.Module = LinearBaseline(features)
        case "step":
            baseline = StepBaseline(features, length)
        case "leave-one-out":
            baseline = LeaveOneOut()
        case _:
            assert_never(config.baseline)
    match config.name:
        case "xent":
            return Xent()
        case "dad":
            annealing = {
                "linear": schedules.linear,
                "exponential": schedules.exponential,
                "inverse-sigmoid": schedules.inverse_sigmoid,
            }[config.annealing]
            truth = schedules.truth_probability(
                annealing, config.annealing_k, config.xent_epochs, len(forced), config.truth_floor
            )
            return Dad(truth, choose=sample if config.feed == "sample" else greedy, generate=fast.generate)
        case "e2e":
            return E2E(forced, config.k)
        case "reinforce":
            return Reinforce(reward, baseline, generate=fast.generate, kl=config.kl, samples=config.samples)
        case "mixer":
            return Mixer(
                reward,
                baseline,
                length,
                forced,
                xent_weight=config.xent_weight,
                reinforce_weight=config.reinforce_weight,
                overlap=config.overlap,
                generate=fast.generate,
                kl=config.kl,
                samples=config.samples,
            )
        case _:
            assert_never(config.name)


def build_schedule(config: AlgorithmConfig, length: int) -> list[int]:
    """Algorithm 1: s by epoch."""
    return schedules.forced_words(length, config.delta, config.xent_epochs, config.mixed_epochs, config.whole)


def run_length(config: Config, length: int) -> int:
    """How many epochs a run has: those of its schedule, or as many as it is told."""
    return config.training.epochs or len(build_schedule(config.algorithm, length))
