"""Small runs for reports, with test sentences that a test made up, and scored."""

import json

from seqmixer.config import Config
from seqmixer.evaluation import Evaluation, Scored, read_sentences, write_sentences
from seqmixer.rewards import METRICS
from seqmixer.rewards.strings import as_rollout, word_ids

WORDS = ["the", "a", "cat", "Dog", "red", "old", "sees", "runs", "and", "house", "tree", "bird"]
N = 60  # test sentences


def sentence(i, length):
    return " ".join(WORDS[(i * 7 + k * k) % len(WORDS)] for k in range(length))


TARGETS = [sentence(i, 3 + i % 6) for i in range(N)]
SOURCES = [" ".join(f"{word[::-1]}" for word in text.split()[::-1]) for text in TARGETS]
HOSTILE = {  # by sentence: what a run wrote
    3: "<script>document.title = 'run'</script><img src=x onerror=\"document.title = 'run'\"></script><!-- &amp;",
    4: "red \x1b[31m \x00 \u202e the \u2066 \u2028 end",
    5: "word " * 20_000,
    6: "x" * 100_000,
    7: "שלום עולם hello مرحبا 👩\u200d👩\u200d👧",
    8: "",
}


def settings(folder, name, **changes):
    splits = {split: ["src", "tgt"] for split in ("train", "valid", "test")}
    values = {
        "name": name,
        "data": {"task": "text", "folder": str(folder), "length": 10, **splits},
        "model": {"hidden": 4},
        "algorithm": {"name": "xent"},
        "training": {"epochs": 2, "batch_size": 20, "threads": 1, "device": "cpu"},
        "evaluation": {"metrics": ["edit", "rouge_l"]},
    }
    return Config.parse(values | changes)


def write(run, hypotheses):
    """Have a run say that it wrote this for the test split, with what is counted of it."""
    kept, ids = read_sentences(run), word_ids()
    wanted = [[text.split() for text in several] for several in kept.references]
    rollout = as_rollout([text.split()[:50] for text in hypotheses], wanted, ids)
    scored, scores = [], json.loads((run / "scores.json").read_text())
    for each in kept.scored:
        counts = METRICS[each.metric].statistics(rollout)
        scored.append(Scored(each.metric, float(METRICS[each.metric].corpus(counts)), each.signature, counts))
    scores["test"] = scored[0].score
    scores["others"] = {each.metric: {"test": each.score, "signature": each.signature} for each in scored[1:]}
    (run / "scores.json").write_text(json.dumps(scores))
    write_sentences(run, Evaluation(scored, hypotheses, kept.references, kept.sources))


def changed(text, i):
    """Another sentence, not always."""
    words = text.split()
    return " ".join([*words[: i % len(words)], *words[i % len(words) + i % 2 :]])
