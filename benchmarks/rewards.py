"""How many sentences a second each reward scores: ours on a CPU thread and on an accelerator, others on a CPU thread.

    python benchmarks/rewards.py --markdown docs/results/rewards.md

All in one run, on the same sentences: references of Zipf-distributed words, hypotheses made of them by replacing,
dropping and repeating words; T = 25, a vocabulary of 22,822 words, one reference, or five for CIDEr-D. On the
accelerator a reward is captured as a CUDA graph, as in a captured training step, and replayed.
"""

import argparse
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from seqmixer.rewards import (
    METRICS,
    CharacterTable,
    DocumentFrequencies,
    as_reward,
    chrf_metric,
    cider_metric,
    sentence_bleu,
)
from seqmixer.types import EOS, PAD, Reward, Rollout

LENGTH, VOCAB, REFERENCES, DOCUMENTS = 25, 22_822, 5, 2_000
CPU_BATCH, DEVICE_BATCHES = 512, (32, 512, 4096)
SECONDS = 1.0  # each figure is the best of the calls in this time


def sentences(batch: int) -> Rollout:
    """Hypotheses that share about half of their words with their references."""
    torch.manual_seed(0)
    zipf = 1 / torch.arange(1.0, VOCAB - 3)
    references = 4 + torch.multinomial(zipf, batch * REFERENCES * LENGTH, replacement=True)
    references = references.view(batch, REFERENCES, LENGTH)
    words = references[:, 0].clone()
    new = torch.rand(batch, LENGTH) < 0.3
    words[new] = 4 + torch.multinomial(zipf, int(new.sum()), replacement=True)
    words = torch.where(torch.rand(batch, LENGTH) < 0.2, words.roll(1, 1), words)
    return Rollout(ended(words), ended(references))


def ended(words: Tensor) -> Tensor:
    """Cut sentences at random lengths: EOS, then PAD."""
    steps = torch.arange(LENGTH)
    end = torch.randint(10, LENGTH, (*words.shape[:-1], 1))
    return words.masked_fill(steps == end, EOS).masked_fill(steps > end, PAD)


def first_reference(rollout: Rollout) -> Rollout:
    return Rollout(rollout.words, rollout.references[:, :1])


def text(words: Tensor) -> list[str]:
    return [" ".join(f"w{word}" for word in row if word not in (PAD, EOS)) for row in words.tolist()]


def per_second(call: Callable[[], object], count: int, device: str) -> float:
    """Sentences a second: the best of many calls, since other work on the machine only ever slows one down."""
    wait = torch.get_device_module(device).synchronize if device != "cpu" else lambda: None
    best, began = float("inf"), time.perf_counter()
    while time.perf_counter() - began < SECONDS:
        wait()
        start = time.perf_counter()
        call()
        wait()
        best = min(best, time.perf_counter() - start)
    return count / best


def on_device(reward: Reward, rollout: Rollout) -> float:
    """Replay the reward as a captured graph."""
    there = Rollout(rollout.words.cuda(), rollout.references.cuda())
    for _ in range(3):
        reward(there)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        reward(there)
    return per_second(graph.replay, len(there.words), "cuda")


def ours(rollout: Rollout) -> dict[str, tuple[Reward, bool]]:
    """Each reward, and whether it has five references."""
    frequencies = DocumentFrequencies.build([row for row in without_padding(sentences(DOCUMENTS).references)])
    table = CharacterTable.build(["<pad>", "<s>", "</s>", "<unk>", *(f"w{i}" for i in range(4, VOCAB))])
    return {
        "BLEU, as released": (sentence_bleu, False),
        "BLEU": (as_reward(METRICS["bleu_mean"]), False),
        "ROUGE-2": (as_reward(METRICS["rouge2_f"]), False),
        "ROUGE-L": (as_reward(METRICS["rouge_l"]), False),
        "edit distance": (as_reward(METRICS["edit"]), False),
        "chrF": (chrf_metric(table).reward, False),
        "CIDEr-D": (cider_metric(frequencies).reward, True),
    }


def without_padding(references: Tensor) -> list[list[list[int]]]:
    return [[[word for word in row if word != PAD] for row in group] for group in references.tolist()]


def theirs(rollout: Rollout) -> dict[str, tuple[str, Callable[[], object]]]:
    """Other libraries on the same text: name -> library, a call that scores the whole batch."""
    from nltk.translate.bleu_score import SmoothingFunction
    from nltk.translate.bleu_score import sentence_bleu as nltk_bleu
    from pycocoevalcap.cider.cider_scorer import CiderScorer
    from rouge_score.rouge_scorer import RougeScorer
    from sacrebleu.metrics import BLEU, CHRF

    hypotheses = text(rollout.words)
    references = [text(group) for group in rollout.references]
    bleu, chrf, smooth = BLEU(tokenize="none", effective_order=True), CHRF(), SmoothingFunction().method1
    rouge2, rouge_l = RougeScorer(["rouge2"]), RougeScorer(["rougeL"])
    tokens = [hypothesis.split() for hypothesis in hypotheses], [group[0].split() for group in references]

    def cider() -> object:
        scorer = CiderScorer()
        for hypothesis, group in zip(hypotheses, references, strict=True):
            scorer.cook_append(hypothesis, group)
        return scorer.compute_score()

    pairs = [(hypothesis, group[0]) for hypothesis, group in zip(hypotheses, references, strict=True)]
    return {
        "BLEU": ("sacrebleu", lambda: [bleu.sentence_score(h, [r]) for h, r in pairs]),
        "BLEU, as released": (
            "nltk",
            lambda: [nltk_bleu([r], h, smoothing_function=smooth) for h, r in zip(*tokens, strict=True)],
        ),
        "ROUGE-2": ("rouge_score", lambda: [rouge2.score(r, h) for h, r in pairs]),
        "ROUGE-L": ("rouge_score", lambda: [rouge_l.score(r, h) for h, r in pairs]),
        "chrF": ("sacrebleu", lambda: [chrf.sentence_score(h, [r]) for h, r in pairs]),
        "CIDEr-D": ("pycocoevalcap", cider),
    }


def measure() -> list[dict[str, object]]:
    torch.set_num_threads(1)
    batch = sentences(CPU_BATCH)
    others = theirs(batch)
    rows = []
    for name, (reward, several) in ours(batch).items():
        rollout = batch if several else first_reference(batch)
        row: dict[str, object] = {"reward": name, "cpu": per_second(lambda r=reward, b=rollout: r(b), CPU_BATCH, "cpu")}
        if name in others:
            library, call = others[name]
            row |= {"library": library, "theirs": per_second(call, CPU_BATCH, "cpu")}
        if torch.cuda.is_available():
            for size in DEVICE_BATCHES:
                wide = sentences(size)
                row[f"device {size}"] = on_device(reward, wide if several else first_reference(wide))
        rows.append(row)
        print(row, flush=True)
    return rows


def markdown(rows: list[dict[str, object]], machine: str) -> str:
    sizes = [size for size in DEVICE_BATCHES if f"device {size}" in rows[0]]
    header = ["reward", "another library", "ours", "ratio", *(f"ours on the device, batch {size}" for size in sizes)]
    lines = [f"| {' | '.join(header)} |", "|---|" + "---:|" * (len(header) - 1)]
    for row in rows:
        other = f"{row['library']} {row['theirs']:,.0f}" if "theirs" in row else "–"
        ratio = f"{row['cpu'] / row['theirs']:.1f}" if "theirs" in row else "–"
        device = [f"{row[f'device {size}']:,.0f}" for size in sizes]
        cells = [str(row["reward"]), other, f"{row['cpu']:,.0f}", ratio, *device]
        lines.append(f"| {' | '.join(cells)} |")
    text = (__doc__ or "").split("\n\n")[2].replace("\n", " ").strip()
    return "\n".join(
        [
            "# Rewards: sentences a second",
            "",
            f"One CPU thread, batch {CPU_BATCH}, unless it says device. {text}",
            "",
            *lines,
            "",
            f"Measured on {machine}, by",
            "",
            "```",
            "python benchmarks/rewards.py --markdown docs/results/rewards.md",
            "```",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", type=Path, help="write the table here, and its numbers as JSON beside it")
    arguments = parser.parse_args()
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no accelerator"
    machine = f"{platform.processor() or platform.machine()}, {device}, torch {torch.__version__}"
    rows = measure()
    page = markdown(rows, machine)
    print(page)
    if arguments.markdown:
        arguments.markdown.write_text(page, encoding="utf-8")
        arguments.markdown.with_suffix(".json").write_text(json.dumps({"machine": machine, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
