"""What all cases work on: a little parallel text, tiny pretrained models, and runs that nothing happened to."""

import hashlib
import json
import random
import shutil
import sys
from functools import cache
from pathlib import Path
from typing import Any

from stress.station import Ended, Kill, run

OWN = {
    "lstm": [],
    "elman": [
        "model.name=elman",
        "algorithm.name=reinforce",
        "algorithm.samples=2",
        "algorithm.baseline=leave-one-out",
    ],
    "transformer": ["model.name=transformer", "model.heads=2", "model.dropout=0.1", "algorithm.kl=0.1"],
}
HUGGING_FACE = {
    name: ["model.name=huggingface", f"model.path=models/{kind}", "data.length=8", "algorithm.delta=8", *more]
    for name, kind, more in (("t5", "t5", []), ("gpt2", "gpt2", []), ("lora", "gpt2", ["model.lora_rank=2"]))
}
FLAVOURS = OWN | HUGGING_FACE
RANKS = ("lstm", "t5")  # these are also trained by two ranks
CONFIG = """
[data]
task = "text"
folder = "{folder}"
train = ["train.src", "train.tgt"]
valid = ["valid.src", "valid.tgt"]
test = ["test.src", "test.tgt"]
length = 6

[model]
hidden = 8

[algorithm]
xent_epochs = 3
mixed_epochs = 3
delta = 3

[reward]
name = "rouge_l"

[training]
batch_size = 6
lr = 0.02
device = "cpu"
threads = 1
save_minutes = 1e-9

[evaluation]
metrics = ["chrf"]
"""
WORDS = ["a", "b", "c", "d", "e", "f", "g", "h"]
SIZES = {"train": 24, "valid": 6, "test": 6}
GENERATE = ["--beam", "2", "--nbest", "2", "--json"]  # with log-probabilities: no weight may be another


def family(flavour: str) -> str:
    return "own" if flavour in OWN else "Hugging Face"


def overrides(settings: list[str]) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


def write_text(folder: Path) -> None:
    """Sentences and their words in reverse."""
    rng = random.Random(1)
    for split, count in SIZES.items():
        sources = [rng.choices(WORDS, k=rng.randint(2, 5)) for _ in range(count)]
        for suffix, lines in (("src", sources), ("tgt", [source[::-1] for source in sources])):
            (folder / f"{split}.{suffix}").write_text("".join(" ".join(line) + "\n" for line in lines))


def write_models(folder: Path) -> None:
    """A T5 and a GPT-2 with random weights, as save_pretrained leaves them."""
    import tiny

    lines = (folder / "train.src").read_text().splitlines()
    tiny.saved("t5", folder / "models/t5", tiny.sentencepieces(lines, size=40), layers=1)
    tiny.saved("gpt2", folder / "models/gpt2", tiny.byte_pieces(lines, size=280), layers=1)


def make(folder: Path) -> None:
    """Text, models and configs; then each flavour's run: done, and killed half-way; and what its commands answer."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    must(run([str(folder)], folder, program="stress.materials"))
    (folder / "run.toml").write_text(CONFIG.format(folder=folder))
    for flavour in FLAVOURS:
        make_runs(folder, flavour)


def make_runs(folder: Path, flavour: str) -> None:
    done, half = folder / flavour / "done", folder / flavour / "half"
    done.mkdir(parents=True)
    whole = must(run(train(folder, flavour, done), done, watched=done))
    truth = {
        "train": result(done / "run"),
        "evaluate": must(run(evaluate(), done)).out.decode(),
        "generate": must(run(generate(folder), done)).out.decode(),
        "changes": whole.changes,
        "of_folders": whole.of_folders,
        "seconds": whole.seconds,
    }
    if flavour in RANKS:
        truth["ranks"] = truth_of_ranks(folder, flavour)
        truth["reward"] = truth_of_reward(folder, flavour)
    (folder / flavour / "truth.json").write_text(json.dumps(truth, indent=1))
    while not (half / "run/last").is_dir() or not (half / "run/best").is_dir():
        shutil.rmtree(half, ignore_errors=True)
        half.mkdir()
        run(train(folder, flavour, half), half, watched=half, kill=Kill(seconds=0.0, changes=2 * whole.changes // 3))


def truth_of_ranks(folder: Path, flavour: str) -> dict[str, Any]:
    """The same of a run of two ranks, which draw other noise."""
    from stress.torchrun import FORKED, job

    two = folder / flavour / "two"
    two.mkdir()
    whole = must(run(job(two, train(folder, flavour, two)), two, watched=two, program=FORKED))
    return {"train": result(two / "run"), "changes": whole.changes, "seconds": whole.seconds}


def truth_of_reward(folder: Path, flavour: str) -> dict[str, str]:
    """What the run with the reward function leaves, where the function does not fail."""
    from stress.rewards import NAME, write

    place = folder / flavour / "reward"
    place.mkdir()
    write(place)
    must(run(train(folder, flavour, ".", NAME), place))
    return result(place / "run")


@cache
def truth(folder: Path, flavour: str) -> dict[str, Any]:
    """What the commands of a flavour answer where nothing happens to them."""
    return dict(json.loads((folder / flavour / "truth.json").read_text()))


def train(folder: Path, flavour: str, out: Path | str = ".", *settings: str) -> list[str]:
    chosen = [setting.replace("=models/", f"={folder}/models/") for setting in FLAVOURS[flavour]]
    return ["train", str(folder / "run.toml"), "--out", str(out), *overrides([*chosen, *settings])]


def evaluate() -> list[str]:
    return ["evaluate", "run", "--json"]


def generate(folder: Path) -> list[str]:
    return ["generate", "run", str(folder / "test.src"), *GENERATE]


def result(folder: Path) -> dict[str, str]:
    """All that a run leaves and that a kill must not change: weights bit for bit, scores, outputs, the log but for its times."""
    found = {}
    for place in ("best", "pretrained"):
        for path in sorted((folder / place).glob("*.safetensors")):
            found[f"{place}/{path.name}"] = hashlib.sha256(path.read_bytes()).hexdigest()
    for name in ("scores.json", "samples.txt", "test.txt", "test.jsonl"):
        found[name] = (folder / name).read_text(errors="replace") if (folder / name).exists() else "missing"
    events = events_of(folder / "log.jsonl")
    found["epochs"] = json.dumps([event.get("epoch") for event in events])
    found["log.jsonl"] = json.dumps([{**event, "seconds": None} for event in events])
    return found


def events_of(path: Path) -> list[dict[str, Any]]:
    try:
        return [dict(json.loads(line)) for line in path.read_text(errors="replace").splitlines()]
    except (OSError, ValueError, TypeError):
        return []


def must(ended: Ended) -> Ended:
    """A command of the undisturbed program."""
    if ended.code or ended.left:
        raise SystemExit(f"{' '.join(ended.argv)} ended with {ended.code}, left {ended.left}: {ended.err.decode()}")
    return ended


if __name__ == "__main__":
    write_text(Path(sys.argv[1]))
    write_models(Path(sys.argv[1]))
