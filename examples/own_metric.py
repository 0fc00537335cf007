"""A metric of your own: any function of strings selects the best model, and is the first column of `compare`."""

import sys

from rich import print as show

from seqmixer import Config, train
from seqmixer.experiments.compare import as_table, compare


def covered(hypothesis: str, references: list[str]) -> float:
    """Share of the first reference's words that were written."""
    written, wanted = set(hypothesis.split()), set(references[0].split())
    return len(written & wanted) / len(wanted)


if __name__ == "__main__":
    sys.path.insert(0, __file__.rpartition("/")[0])
    epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 6
    both = {
        "data": {"task": "toy-summarization"},
        "model": {"name": "elman", "hidden": 64},
        "training": {"batch_size": 64, "lr": 4e-3, "epochs": epochs},
        "evaluation": {"metrics": ["own_metric:covered", "0.5*rouge2 + 0.5*own_metric:covered"]},
    }
    runs = [
        train(Config.parse({"name": f"metric-{n}", "seed": n, "algorithm": {"name": "xent"}, **both})) for n in (1, 2)
    ]
    show(as_table(compare(runs)).terminal(), file=sys.stderr)
    print(runs[0].evaluate().score)
