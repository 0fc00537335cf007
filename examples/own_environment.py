"""A reward in another Python environment, as for a learned metric whose libraries clash with those of seqmixer."""

import os
import sys
import venv
from zlib import crc32


def similarity(hypotheses: list[str], references: list[list[str]]) -> list[float]:
    """Cosine of hashed letter triples; a learned metric is loaded at the import, and called here once a batch."""
    return [cosine(triples(text), triples(several[0])) for text, several in zip(hypotheses, references, strict=True)]


def triples(text: str) -> list[int]:
    hashes = [crc32(f" {text} "[i : i + 3].encode()) % 512 for i in range(len(text) + 1)]
    return [hashes.count(bucket) for bucket in range(512)]


def cosine(a: list[int], b: list[int]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True)) / (sum(x * x for x in a) * sum(y * y for y in b)) ** 0.5


if __name__ == "__main__":
    from seqmixer import Config, train  # which the other environment does not have

    os.environ["PYTHONPATH"] = __file__.rpartition("/")[0]  # where it finds this module
    venv.create("environment", symlinks=os.name != "nt")  # yours is there already
    config = Config.parse(
        {
            "name": "own-environment",
            "data": {"task": "toy-summarization"},
            "model": {"name": "elman", "hidden": 64},
            "algorithm": {"name": "mixer", "xent_epochs": 3, "mixed_epochs": 1, "delta": 6},
            "reward": {"name": "own_environment:similarity", "python": "environment/bin/python", "seconds": 60},
            "training": {"batch_size": 64, "lr": 4e-3, "epochs": int(sys.argv[1]) if len(sys.argv) > 1 else 8},
        }
    )
    print(train(config).evaluate().score)
