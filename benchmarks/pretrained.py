"""A training step of pretrained models, beside TRL's GRPO and a loop by hand with `generate`: one table.

Every row does the same work: prompts of 32 words, 4 samples of up to 64 words for each, sentence BLEU, the mean reward
of the other samples as the baseline, one update of AdamW or Adam in bfloat16. Weights and texts are random, sizes those
of known models. TRL is in the extra `dev`.

python benchmarks/pretrained.py --markdown docs/results/pretrained.md
"""

import argparse
import gc
import json
import os
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ.update(HF_HUB_OFFLINE="1", HF_HUB_DISABLE_TELEMETRY="1", TOKENIZERS_PARALLELISM="false")

import torch
import transformers
from sacrebleu.metrics import BLEU
from speed import wait

from seqmixer.algorithms import LeaveOneOut, Reinforce
from seqmixer.config import TrainingConfig
from seqmixer.decoding import fast, sample
from seqmixer.models.huggingface import Decoder, EncoderDecoder
from seqmixer.rewards import sentence_bleu
from seqmixer.training.step import Step
from seqmixer.types import EOS, Batch

ABOUT = (
    "64 prompts of 32 words, 4 samples of up to 64 words each, random weights and texts, sentence BLEU. Seconds are "
    "the median of a step after the first ones. TRL and the loop by hand call sacrebleu; seqmixer counts on the device."
)
PAD_ID, EOS_ID, UNK_ID, BOS_ID = 0, 1, 2, 3  # of the networks


@dataclass(frozen=True)
class Size:
    """How much work a step is."""

    vocab: int
    prompts: int
    samples: int
    length: int  # T
    source: int  # N
    shapes: dict[str, dict[str, int]]  # of each network


LARGE = Size(32_000, 64, 4, 64, 32, {
    "Llama": {"hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
              "intermediate_size": 1536},
    "GPT-2": {"n_embd": 768, "n_layer": 12, "n_head": 12},
    "T5": {"d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 12, "num_heads": 12},
})  # fmt: skip
TINY = Size(500, 4, 4, 8, 12, {
    "Llama": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
              "intermediate_size": 128},
    "GPT-2": {"n_embd": 64, "n_layer": 2, "n_head": 4},
    "T5": {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4},
})  # fmt: skip


@dataclass(frozen=True)
class Row:
    """What a step takes."""

    model: str
    way: str
    parameters: int
    seconds: float
    sampling: float  # seconds of it, sampling by itself
    tokens_per_second: int
    peak_gib: float | None
    reserved_gib: float | None
    note: str = ""


def network(kind: str, size: Size, device: torch.device) -> Any:
    torch.manual_seed(0)
    ends = {"pad_token_id": PAD_ID, "eos_token_id": EOS_ID, "vocab_size": size.vocab, **size.shapes[kind]}
    with torch.device(device):
        if kind == "Llama":
            config = transformers.LlamaConfig(tie_word_embeddings=True, bos_token_id=EOS_ID, **ends)
            return transformers.LlamaForCausalLM(config)
        if kind == "GPT-2":
            drop = {"resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}
            return transformers.GPT2LMHeadModel(transformers.GPT2Config(bos_token_id=EOS_ID, **drop, **ends))
        config = transformers.T5Config(decoder_start_token_id=PAD_ID, dropout_rate=0.0, **ends)
        return transformers.T5ForConditionalGeneration(config)


def texts(size: Size, lines: int, width: int) -> list[str]:
    torch.manual_seed(1)
    return [" ".join(f"w{i}" for i in row) for row in torch.randint(0, size.vocab - 4, (lines, width)).tolist()]


def tokenizer(size: Size, encoder: bool) -> Any:
    """Words w0, w1, ... have ids 4, 5, ..."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = ["<pad>", "</s>", "<unk>", "<s>", *(f"w{i}" for i in range(size.vocab - 4))]
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if encoder:
        made.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", EOS_ID)])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
        padding_side="right" if encoder else "left",
    )


def bleu(completions: list[str], references: list[list[str]], **_: Any) -> list[float]:
    scorer = BLEU(effective_order=True)
    pairs = zip(completions, references, strict=True)
    return [scorer.sentence_score(written, right).score / 100 for written, right in pairs]


def measured(kind: str, way: str, model: Any, size: Size, steps: list[float], sampling: list[float], note: str) -> Row:
    seconds = statistics.median(steps)
    tokens = size.prompts * size.samples * size.length
    gib = 2**30
    peaks = (torch.cuda.max_memory_allocated() / gib, torch.cuda.max_memory_reserved() / gib)
    peak, reserved = (round(each, 2) for each in peaks) if torch.cuda.is_available() else (None, None)
    parameters = sum(p.numel() for p in model.parameters())
    typical = statistics.median(sampling)
    return Row(
        kind, way, parameters, round(seconds, 4), round(typical, 4), round(tokens / seconds), peak, reserved, note
    )


def of_trl(kind: str, size: Size, device: torch.device, warm: int, steps: int) -> Row:
    from datasets import Dataset
    from transformers.trainer_callback import PrinterCallback, ProgressCallback
    from trl import GRPOConfig, GRPOTrainer

    taken: list[float] = []
    sampling: list[float] = []

    class Clock(transformers.TrainerCallback):
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            self.at = now(device)

        def on_step_end(self, *_: Any, **__: Any) -> None:
            taken.append(now(device) - self.at)
            self.at = now(device)

    lines = size.prompts * (warm + steps)
    references = [[line] for line in texts(size, lines, size.length - 1)]
    model = network(kind, size, device).to(torch.bfloat16 if device.type == "cuda" else torch.float32)
    arguments = GRPOConfig(
        output_dir=tempfile.mkdtemp(),
        use_cpu=device.type == "cpu",
        bf16=device.type == "cuda",
        gradient_checkpointing=False,
        per_device_train_batch_size=size.prompts * size.samples,
        num_generations=size.samples,
        max_completion_length=size.length,
        learning_rate=1e-6,
        beta=0.0,
        max_steps=warm + steps,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        shuffle_dataset=False,
        dataloader_pin_memory=False,
    )
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=bleu,
        args=arguments,
        train_dataset=Dataset.from_dict({"prompt": texts(size, lines, size.source), "references": references}),
        processing_class=tokenizer(size, encoder=False),
        callbacks=[Clock()],
    )
    for callback in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(callback)
    write = trainer._generate_single_turn

    def timed(*arguments: Any, **named: Any) -> Any:
        began = now(device)
        written = write(*arguments, **named)
        sampling.append(now(device) - began)
        return written

    trainer._generate_single_turn = timed
    trainer.train()
    return measured(kind, "TRL GRPO", model, size, taken[warm:], sampling[warm:], "weights in bfloat16")


def by_hand(kind: str, size: Size, device: torch.device, warm: int, steps: int) -> Row:
    """What one writes for an encoder-decoder today."""
    model, words = network(kind, size, device), tokenizer(size, encoder=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, weight_decay=0.0, fused=True)
    sources = texts(size, size.prompts * (warm + steps), size.source)
    right = texts(size, size.prompts * (warm + steps), size.length - 1)
    taken: list[float] = []
    sampling: list[float] = []
    for first in range(0, len(sources), size.prompts):
        began = now(device)
        given = words(sources[first : first + size.prompts], return_tensors="pt", padding=True).to(device)
        ids, mask = given.input_ids, given.attention_mask
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            model.eval()
            with torch.no_grad():
                written = model.generate(
                    input_ids=ids,
                    attention_mask=mask,
                    do_sample=True,
                    top_k=0,
                    max_new_tokens=size.length,
                    num_return_sequences=size.samples,
                )[:, 1:]
            sampling.append(now(device) - began)
            spelled = words.batch_decode(written, skip_special_tokens=True)
            references = [[right[first + i // size.samples]] for i in range(len(spelled))]
            r = torch.tensor(bleu(spelled, references), device=device).view(-1, size.samples)
            advantage = (r - (r.sum(1, keepdim=True) - r) / (size.samples - 1)).flatten()
            memory = model.get_encoder()(input_ids=ids, attention_mask=mask).last_hidden_state
            logits = model(
                encoder_outputs=(memory.repeat_interleave(size.samples, 0),),
                attention_mask=mask.repeat_interleave(size.samples, 0),
                decoder_input_ids=torch.cat([torch.zeros_like(written[:, :1]), written[:, :-1]], 1),
            ).logits
        log_p = logits.float().log_softmax(-1).gather(-1, written.unsqueeze(-1)).squeeze(-1)
        loss = -(log_p * (written != PAD_ID) * advantage.unsqueeze(-1)).sum() / len(written)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        taken.append(now(device) - began)
    return measured(kind, "by hand, `generate`", model, size, taken[warm:], sampling[warm:], "")


def ours(kind: str, size: Size, device: torch.device, warm: int, steps: int) -> Row:
    ids = (PAD_ID, BOS_ID, EOS_ID, UNK_ID, *range(4, size.vocab))
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    adapter = EncoderDecoder if kind == "T5" else Decoder
    model = adapter(network(kind, size, device), ids, dtype)
    algorithm = Reinforce(sentence_bleu, LeaveOneOut(), generate=fast.generate, samples=size.samples).to(device)
    notes: list[str] = []
    settings = TrainingConfig(batch_size=size.prompts, lr=1e-6, clip=1.0, device=str(device))
    step = Step(model, algorithm, settings, report=notes.append)
    taken: list[float] = []
    for i in range(warm + steps):
        batch = made_up(size, device, seed=i)
        began = now(device)
        step(batch, 0)
        taken.append(now(device) - began)
    sampling: list[float] = []
    many = batch.repeat(size.samples)
    nothing = torch.zeros_like(many.target, dtype=torch.bool)
    for _ in range(2 + 3):
        began = now(device)
        fast.generate(model, batch.source, many.target, nothing, sample)
        sampling.append(now(device) - began)
    return measured(kind, "seqmixer", model, size, taken[warm:], sampling[2:], "; ".join(notes))


def made_up(size: Size, device: torch.device, seed: int) -> Batch:
    torch.manual_seed(seed)
    source = torch.randint(4, size.vocab, (size.prompts, size.source), device=device)
    target = torch.randint(4, size.vocab, (size.prompts, size.length), device=device)
    source[:, -1] = target[:, -1] = EOS
    return Batch(source, target, target.unsqueeze(1))


def now(device: torch.device) -> float:
    wait(device)
    return time.perf_counter()


def attempts(kinds: list[str]) -> Iterator[tuple[str, Callable[..., Row]]]:
    for kind in kinds:
        yield kind, by_hand if kind == "T5" else of_trl
        yield kind, ours


def page(machine: str, table: list[Row], command: str) -> Iterator[str]:
    """The results as a page."""
    yield from ("# Pretrained models", "", f"`{command}`", "", f"{machine}, torch {torch.__version__}. {ABOUT}", "")
    yield "| model | parameters | way | step, s | sampling, s | tokens/s | times | peak GiB | reserved GiB | |"
    yield "|---|--:|---|--:|--:|--:|--:|--:|--:|---|"
    first: dict[str, Row] = {}
    for row in table:
        times = row.tokens_per_second / first.setdefault(row.model, row).tokens_per_second
        cells = [row.model, f"{row.parameters / 1e6:.0f} M", row.way, f"{row.seconds:.3f}", f"{row.sampling:.3f}"]
        cells += [f"{row.tokens_per_second:,}", f"{times:.2f}", row.peak_gib, row.reserved_gib, row.note]
        yield "| " + " | ".join(map(str, cells)) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", type=Path, help="write the table here, and JSON beside it")
    parser.add_argument("--models", default="Llama,GPT-2,T5")
    parser.add_argument("--only", choices=["ours"], help="without the others' rows")
    parser.add_argument("--tiny", action="store_true", help="small networks, to try it on a CPU")
    parser.add_argument("--warm", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cuda.matmul.allow_tf32 = True
    size = TINY if options.tiny else LARGE
    machine = torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    table: list[Row] = []
    for kind, attempt in attempts(options.models.split(",")):
        if options.only and attempt is not ours:
            continue
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        table.append(attempt(kind, size, device, options.warm, options.steps))
        print(json.dumps(asdict(table[-1])), flush=True)
    lines = list(page(machine, table, shlex.join(["python", *sys.argv])))
    print("\n".join(lines))
    if options.markdown:
        values = {"machine": machine, "torch": torch.__version__, "rows": [asdict(row) for row in table]}
        options.markdown.with_suffix(".json").write_text(json.dumps(values, indent=1))
        options.markdown.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
