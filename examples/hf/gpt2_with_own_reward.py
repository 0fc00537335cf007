"""GPT-2 with LoRA, paid by a function of strings. Usage: python gpt2_with_own_reward.py [MODEL [EPOCHS]]"""

import sys

from seqmixer import Config, train


def few_words(hypothesis: str, references: list[str]) -> float:
    """Words of the reference that were written, less a price for each word."""
    written, wanted = hypothesis.split(), references[0].split()
    return len(set(written) & set(wanted)) / len(set(wanted)) - 0.02 * len(written)


if __name__ == "__main__":
    sys.path.insert(0, __file__.rpartition("/")[0])
    epochs = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    config = Config.parse(
        {
            "name": "gpt2-with-own-reward",
            "data": {"task": "toy-summarization", "suffix": " TL;DR:", "length": 24},
            "model": {
                "name": "huggingface",
                "path": sys.argv[1] if len(sys.argv) > 1 else "openai-community/gpt2",
                "lora_rank": 8,
            },
            "algorithm": {"name": "mixer", "xent_epochs": epochs, "mixed_epochs": 1, "delta": 12},
            "reward": {"name": "gpt2_with_own_reward:few_words"},
            "training": {"batch_size": 16, "lr": 1e-3, "rl_lr": 1e-4, "clip": 1.0},
            "evaluation": {"metrics": ["rouge_l"]},
        }
    )
    print(train(config).evaluate().score)
