"""Short runs of every algorithm, reward and model, and the record of their losses: `python tests/golden/record.py`.

For changes that must not change numbers: test_golden.py holds the code to the record. A record is made anew only where
numbers are meant to change, and then the commit says why. With names of cases, only these are: `again` lists them.
"""

import contextlib
import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

RECORD = Path(__file__).parent / "losses.json"
UPDATES = 50  # 10 epochs of 5 batches
LENGTH = 7  # T
WORDS = ["red", "blue", "green", "big", "small", "old", "new", "cat", "dog", "bird", "sees", "likes", "finds"]

TRAINING = {"epochs": 10, "batch_size": 4, "lr": 0.01, "rl_lr": 0.005, "device": "cpu", "precision": "float32"}
MIXER = {"name": "mixer", "xent_epochs": 4, "mixed_epochs": 2, "delta": 3}  # s = 7, 4, 1 and 0
REINFORCE = {"name": "reinforce"}
FOUR = {"samples": 4, "baseline": "leave-one-out"}


def cases():
    """The settings of each run by its name."""
    algorithms = {
        "xent": {"name": "xent"},
        "dad": {"name": "dad", "xent_epochs": 2, "annealing_k": 8.0},
        "dad greedy": {"name": "dad", "xent_epochs": 2, "annealing": "exponential", "annealing_k": 0.8, "feed": "greedy"},
        "e2e": {**MIXER, "name": "e2e", "k": 3, "annealing": "stages"},
        "reinforce": REINFORCE,
        "reinforce, 4 samples": {**REINFORCE, **FOUR},
        "reinforce, steps": {**REINFORCE, "baseline": "step"},
        "reinforce, kl": {**REINFORCE, "kl": 0.1},
        "mixer": MIXER,
        "mixer, 4 samples": {**MIXER, **FOUR},
        "mixer, 2 samples, steps, kl": {**MIXER, "samples": 2, "baseline": "step", "kl": 0.1},
        "mixer, overlap": {**MIXER, "overlap": True, "xent_weight": 0.3, "reinforce_weight": 0.9},
        "mixer, steps": {**MIXER, "baseline": "step"},
        "mixer, kl": {**MIXER, "kl": 0.1},
    }  # fmt: skip
    rewards = {
        "rouge2": {"name": "rouge2"},
        "bleu_best, end": {"name": "bleu_best", "eos": True},
        "cider": {"name": "cider"},
        "a sum": {"name": "0.5*chrf + 2*rouge_l - 0.1*length"},
        "a function of text": {"name": "golden.record:overlap"},
        "a function of ids": {"name": "golden.record:same_ids", "on": "words"},
    }
    models = {
        "elman": {"name": "elman"},
        "lstm": {"name": "lstm"},
        "gru": {"name": "gru"},
        "transformer": {"name": "transformer", "heads": 2},
        "elman, released": {"name": "elman", "variant": "released", "window": 3, "init": 0.3},
        "lstm, released": {"name": "lstm", "variant": "released", "init": 0.3},
        "lstm, layers and dropout": {"name": "lstm", "layers": 2, "dropout": 0.2},
        "gru, layers and dropout": {"name": "gru", "layers": 2, "dropout": 0.2},
        "transformer, learned positions, layers and dropout": {
            "name": "transformer", "heads": 2, "positions": "learned", "layers": 2, "dropout": 0.2,
        },
    }  # fmt: skip
    found = {f"{name}": {"algorithm": algorithm} for name, algorithm in algorithms.items()}
    found |= {f"mixer, {name}": {"algorithm": MIXER, "reward": reward} for name, reward in rewards.items()}
    for model, shape in models.items():
        for source in ("text", "image", "nothing") if "," not in model else ("text",):
            for name in ("xent", "mixer") if (model, source) != ("lstm", "text") else ():  # those are above
                algorithm = algorithms[name]
                found[f"{model} on {source}, {name}"] = {"model": shape, "source": source, "algorithm": algorithm}
    for kind in ("t5", "gpt2"):
        found[f"{kind}, mixer"] = {"model": {"name": "huggingface", "path": kind}, "algorithm": MIXER}
    found["mixer, plain torch"] = {"algorithm": MIXER, "training": {"fast": False}}
    found["mixer, dropout while sampling, sgd"] = {
        "model": {"name": "lstm", "dropout": 0.2},
        "algorithm": MIXER,
        "training": {"rl_dropout": True, "optimizer": "sgd", "lr": 0.2, "clip": 0.5},
    }
    return found


def losses(settings, folder):
    """The loss of every update of a run. Of everything here, only this function knows the parts of seqmixer."""
    from seqmixer.algorithms import Parts
    from seqmixer.build import Dimensions, Metrics, build_algorithm, build_model, build_task
    from seqmixer.config import Config
    from seqmixer.storage import pretrained
    from seqmixer.training import Training

    config = Config.parse(settings)
    task = build_task(config.data, pretrained.vocabs(config) if config.model.pretrained else None)
    torch.manual_seed(config.seed)
    model = build_model(config.model, Dimensions.of(task))
    of_task = task.length, len(task.target_vocab)
    parts = Parts(Metrics(config, task).reward, model.features, *of_task, config.training.epochs)
    algorithm = build_algorithm(config.algorithm, parts)
    found = []
    loss = algorithm.loss

    def listed(*given):
        made = loss(*given)
        found.append(made.value.item())
        return made

    algorithm.loss = listed
    Training(model, algorithm, task, folder, epochs=config.training.epochs, settings=config.training).run()
    return found


def recorded(name, folder):
    """The losses of a case, run in an empty folder."""
    torch.set_num_threads(1)
    return losses(settings_of(name, cases()[name], folder), folder / "run")


def settings_of(name, case, folder):
    """All settings of a case, whose files are written to `folder`."""
    source, model = case.get("source", "text"), {"hidden": 8, **case.get("model", {"name": "lstm"})}
    if model["name"] == "huggingface":
        model = {"name": "huggingface", "path": pretrained_network(model["path"], folder)}
    return {
        "seed": 5,
        "data": {"folder": str(folder), "length": LENGTH, **written_data(source, folder)},
        "model": model,
        "algorithm": case["algorithm"],
        "reward": case.get("reward", {"name": "bleu"}),
        "training": {**TRAINING, **case.get("training", {})},
    }


def written_data(source, folder):
    """Sentences that are read backwards, with two references each, and what reads them."""
    splits = {"train": 20, "valid": 3, "test": 3}
    lines = [[WORDS[(i * k + k) % len(WORDS)] for k in range(1, 3 + i % 5)] for i in range(sum(splits.values()))]
    references = [[line[::-1], line[:0:-1] or line] for line in lines]
    if source == "image":
        names = [split for split, n in splits.items() for _ in range(n)]
        entries = [
            {"id": str(i), "row": i, "split": split, "captions": [" ".join(words) for words in references[i]]}
            for i, split in enumerate(names)
        ]
        (folder / "captions.json").write_text(json.dumps(entries))
        features = np.array([[(i * k) % 7 / 7 for k in range(1, 6)] for i in range(len(lines))], dtype=np.float32)
        np.save(folder / "features.npy", features)
        return {"task": "captions"}
    first = 0
    named = {}
    for split, n in splits.items():
        texts = {"in": lines, "one": [pair[0] for pair in references], "two": [pair[1] for pair in references]}
        for suffix, sentences in texts.items():
            text = "".join(" ".join(words) + "\n" for words in sentences[first : first + n])
            (folder / f"{split}.{suffix}").write_text(text, encoding="utf-8")
        named[split] = [f"{split}.{suffix}" for suffix in (texts if source == "text" else ("one", "two"))]
        first += n
    return {"task": "text", "source": source == "text", **named}


def pretrained_network(kind, folder):
    """A tiny network of transformers with random weights, saved."""
    import tiny

    lines = [" ".join(WORDS[i:] + WORDS[:i]) for i in range(len(WORDS))]
    tokenizer = tiny.byte_pieces(lines, size=270) if kind == "gpt2" else tiny.sentencepieces(lines, size=60)
    return tiny.saved(kind, folder / "network", tokenizer, layers=1)


def overlap(hypothesis, references):
    """The share of the words of the first reference that were written."""
    wanted = set(references[0].split())
    return len(wanted & set(hypothesis.split())) / len(wanted)


def same_ids(hypothesis, references):
    """The share of the places with the word of the first reference."""
    return sum(a == b for a, b in zip(hypothesis, references[0], strict=False)) / max(len(references[0]), 1)


def machine():
    """What decides about the last bits."""
    import transformers

    return {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "cpu": f"{platform.system()} {platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
    }


def main(names):
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
    kept = json.loads(RECORD.read_text(encoding="utf-8")) if names else {"again": {}, "losses": {}}
    for name in names or cases():
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
            kept["losses"][name] = " ".join(value.hex() for value in recorded(name, Path(folder)))
        print(f"{name}: {float.fromhex(kept['losses'][name].split()[-1]):.4f}")
    head = {"commit": commit.stdout.strip(), "how": "python tests/golden/record.py", "machine": machine()}
    head = {key: kept.get(key, value) for key, value in head.items()}
    head["again"] = {**kept.get("again", {}), **dict.fromkeys(names, commit.stdout.strip())}
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(values)}" for name, values in kept["losses"].items())
    RECORD.write_text(f'{json.dumps(head, indent=1)[:-2]},\n "losses": {{\n{rows}\n}}}}\n', encoding="utf-8")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))  # for golden.record and tiny
    main(sys.argv[1:])
