"""Sentences a second of greedy and beam search, plain and fast, beside Hugging Face's `generate`, models of like size.

python benchmarks/decoding.py --markdown docs/results/decoding.md
"""

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from speed import SHAPES, made_up, wait
from torch import Tensor

from seqmixer.build import Dimensions, build_model
from seqmixer.config import ModelSettings, RecurrentSettings, TransformerSettings
from seqmixer.decoding import beam_search, fast, free, generate, greedy
from seqmixer.kernels import plain
from seqmixer.types import SequenceModel

BEAMS = (1, 5, 10)
ABOUT = (
    "6,750 made-up sources of 24 words, random weights, every search runs all 25 steps. BART's embeddings are shared, "
    "hence fewer parameters. Plain and transformers are timed on a part of the sentences and scaled."
)
LENGTH = 25  # T of the paper's translation


@dataclass(frozen=True)
class Row:
    """What writing all sentences takes, after a first time."""

    model: str
    parameters: int
    way: str
    search: str
    batch: int
    seconds: float
    sentences_per_second: int


def writing(model: SequenceModel, beam: int, way: str) -> Callable[[Tensor], Tensor]:
    """A search as a function of sources."""
    if beam == 1:
        search = fast.generate if way == "fast" else generate
        return lambda source: search(model, source, *free(source, LENGTH), greedy)
    of_beam = fast.beam_search if way == "fast" else beam_search
    return lambda source: of_beam(model, source, LENGTH, beam).words[:, 0]


def timed(write: Callable[[Tensor], Tensor], batches: list[Tensor], warm: int) -> float:
    """Seconds for all batches, the last of which may be smaller."""
    for _ in range(warm):
        for source in (batches[0], batches[-1]):
            write(source)
    wait(batches[0].device)
    began = time.perf_counter()
    for source in batches:
        write(source)
    wait(batches[0].device)
    return time.perf_counter() - began


def own(name: str, config: ModelSettings, sources: Tensor, size: int, share: dict[str, int]) -> Iterator[Row]:
    """Rows of one of our models."""
    shape = SHAPES[0]
    torch.manual_seed(1)
    model = build_model(config, shape.dimensions).to(sources.device).eval()
    for way in ("plain", "fast"):
        for beam in BEAMS:
            batches = list(sources[: len(sources) // share[way]].split(size))
            with plain() if way == "plain" else nullcontext():
                seconds = timed(writing(model, beam, way), batches, 3) * share[way]
            search = "greedy" if beam == 1 else f"beam {beam}"
            yield Row(name, count(model), way, search, size, round(seconds, 3), round(len(sources) / seconds))


def hugging_face(sources: Tensor, size: int, dimensions: Dimensions, share: int) -> Iterator[Row]:
    """The same with transformers: a BART of one layer, hidden size 256, our vocabularies. EOS is never written."""
    from transformers import BartConfig, BartForConditionalGeneration

    torch.manual_seed(1)
    config = BartConfig(
        vocab_size=dimensions.target_vocab,
        d_model=256,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=1024,
        decoder_ffn_dim=1024,
        max_position_embeddings=64,
        forced_eos_token_id=None,
    )
    model = BartForConditionalGeneration(config).to(sources.device).eval()
    sources = sources.clamp(max=dimensions.target_vocab - 1)
    batches = list(sources[: len(sources) // share].split(size))
    for beam in BEAMS:

        @torch.no_grad()
        def write(source: Tensor, beam: int = beam) -> Tensor:
            return model.generate(
                source,
                num_beams=beam,
                do_sample=False,
                min_new_tokens=LENGTH,
                max_new_tokens=LENGTH,
                early_stopping=False,
            )

        seconds = timed(write, batches, 1) * share
        search = "greedy" if beam == 1 else f"beam {beam}"
        yield Row(
            "BART, 1 + 1 layers",
            count(model),
            "transformers",
            search,
            size,
            round(seconds, 3),
            round(len(sources) / seconds),
        )


def page(machine: str, table: list[Row], command: str) -> Iterator[str]:
    """The results as a page."""
    yield from ("# Decoding", "", f"`{command}`", "", f"{machine}, torch {torch.__version__}, TF32. {ABOUT}", "")
    yield "| model | parameters | way | search | batch | seconds | sentences/s |"
    yield "|---|--:|---|---|--:|--:|--:|"
    for row in table:
        size = f"{row.parameters / 1e6:.1f} M"
        cells = [row.model, size, row.way, row.search, row.batch, f"{row.seconds:.2f}", f"{row.sentences_per_second:,}"]
        yield "| " + " | ".join(map(str, cells)) + " |"


def count(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", type=Path, help="write the table here, and JSON beside it")
    parser.add_argument("--sentences", type=int, default=6750)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    device = torch.device(options.device)
    torch.backends.cuda.matmul.allow_tf32 = True
    sources = made_up(SHAPES[0], options.sentences, device).source
    machine = torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(f"{machine}, torch {torch.__version__}, {options.sentences:,} sentences of {LENGTH} words")
    table = []
    models = {
        "LSTM 256": RecurrentSettings(name="lstm", hidden=256),
        "Transformer, 1 + 1 layers": TransformerSettings(hidden=256, heads=4, layers=1),
    }
    rows = [own(name, config, sources, options.batch, {"plain": 2, "fast": 1}) for name, config in models.items()]
    for row in (*rows[0], *rows[1], *hugging_face(sources, options.batch, SHAPES[0].dimensions, 3)):
        print(
            f"{row.model:28}{row.way:14}{row.search:10}{row.seconds:9.2f} s{row.sentences_per_second:10,}/s", flush=True
        )
        table.append(row)
    if options.markdown:
        values = {"machine": machine, "torch": torch.__version__, "rows": [asdict(row) for row in table]}
        options.markdown.with_suffix(".json").write_text(json.dumps(values, indent=1))
        options.markdown.write_text("\n".join(page(machine, table, shlex.join(["python", *sys.argv]))) + "\n")


if __name__ == "__main__":
    main()
