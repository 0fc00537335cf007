"""A reward of your own: any function of strings. Use it by its path, reward.name = "own_reward:short_and_right"."""

import sys

from seqmixer import Config, train


def short_and_right(hypothesis: str, references: list[str]) -> float:
    """Share of the first reference's words that were written, less a price for each word."""
    written, wanted = hypothesis.split(), references[0].split()
    return len(set(written) & set(wanted)) / len(set(wanted)) - 0.02 * len(written)


if __name__ == "__main__":
    sys.path.insert(0, __file__.rpartition("/")[0])
    epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    config = Config.parse(
        {
            "name": "own-reward",
            "data": {"task": "toy-summarization"},
            "model": {"name": "elman", "hidden": 64},
            "algorithm": {"name": "mixer", "xent_epochs": epochs, "mixed_epochs": 1, "delta": 4},
            "reward": {"name": "own_reward:short_and_right"},
            "training": {"batch_size": 64, "lr": 4e-3, "rl_lr": 1e-3},
            "evaluation": {"metrics": ["own_reward:short_and_right", "rouge2"]},
        }
    )
    print(train(config).evaluate(beam=5).score)
