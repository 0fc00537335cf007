"""Runs of pretrained models: their tokenizer makes the words, and the run folder keeps all but the first weights.

PATH is a folder or a name of the hub. RUN/pretrained/ has the network's config and its tokenizer from the beginning,
and its trained weights at the end: it is a folder that transformers opens by itself.
"""

import json
import shutil
from pathlib import Path

import torch
from torch import nn

from seqmixer import files
from seqmixer.config import Config, HuggingFaceSettings
from seqmixer.data import Task, Vocabs, Vocabulary, read_tokenizer, token_ids, tokenizer_vocabs
from seqmixer.errors import ConfigError, DataError, RunError
from seqmixer.models import huggingface
from seqmixer.models.huggingface import Decoder, EncoderDecoder, Pretrained
from seqmixer.storage import checkpoint

FOLDER, TIED, WEIGHTS = "pretrained", "tied.json", "*.safetensors*"


def vocabs(config: Config, run: Path | None = None) -> Vocabs | None:
    """The words of sources and targets, of the model that a run begins with or keeps; None if it has no such model."""
    if not isinstance(config.model, HuggingFaceSettings):
        return None
    path = place(config.model, run)
    return tokenizer_vocabs(
        path,
        encoder=huggingface.read_config(path).is_encoder_decoder,
        source=config.data.source,
        prefix=config.data.prefix,
        suffix=config.data.suffix,
        limit=config.data.source_length,
    )


def model(config: HuggingFaceSettings, run: Path | None = None) -> EncoderDecoder | Decoder:
    """The model that a run begins with; or the shape of the one it keeps, for weights of a checkpoint."""
    path = place(config, run)
    made = huggingface.load(
        Pretrained(path, token_ids(read_tokenizer(path), path), weights=run is None),
        lora_rank=config.lora_rank,
        checkpointing=config.checkpointing,
        dtype=torch.bfloat16 if config.dtype == "bfloat16" else torch.float32,
    )
    if run is not None:
        huggingface.untie(made, read_tied(Path(path)))
    return made


def place(config: HuggingFaceSettings, run: Path | None) -> str:
    if run is None:
        path = str(config.path)
        beside = "/" in path and Path(path).parent.is_dir()  # a name of the hub would be asked for again and again
        if (path.startswith((".", "/", "~")) or path.count("/") > 1 or beside) and not Path(path).is_dir():
            raise ConfigError(f"model.path = {path!r}: no such folder; a name of the hub is NAME or OWNER/NAME")
        return path
    folder = kept(run)
    if folder is None:  # what is no folder would be taken for a name of the hub
        raise RunError(f"{run}: {FOLDER}/ is missing; this is no complete run folder")
    return str(folder)


def kept(run: Path) -> Path | None:
    """The folder of a run's network and tokenizer, also after a crash between two renames."""
    folder = run / FOLDER
    if folder.is_dir():
        return folder
    return next((place for place in checkpoint.places(folder) if checkpoint.complete(place)), None)


def require_intact(run: Path) -> None:
    """Refuse a network or tokenizer that is not what was written. Without a manifest they are taken as they are."""
    folder = kept(run)
    if folder is not None and (folder / checkpoint.MANIFEST).exists():
        try:
            checkpoint.verify(folder)
        except RunError as error:
            raise RunError(f"{folder} is {error}; fetch the run again, or begin another (--set name=...)") from None


def read_tied(folder: Path) -> list[str]:
    tied: list[str] = files.read_json(folder / TIED, list[str])
    return tied


def require_positions(path: str, task: Task) -> None:
    """Refuse data that is longer than the model's positions, before training."""
    config = huggingface.read_config(path)
    limit, T = huggingface.positions_of(config), task.length
    longest = max(len(source) for split in task.splits.values() for source in split.sources)
    if limit is not None and (max(longest, T) if config.is_encoder_decoder else longest + T) > limit:
        raise DataError(
            f"the longest source has {longest} tokens and T = {T}, but {path} has positions for {limit}; "
            "set data.source_length (and data.length)"
        )


def keep(path: str, model: nn.Module, vocab: Vocabulary, run: Path) -> None:
    """Copy the network's config, the tokenizer and the names of tied weights into the run folder.

    The last is not in the config: transformers ties or not by what it finds in the file of the weights.
    """
    if kept(run) is None:
        with checkpoint.replacing(run / FOLDER, keep=0) as new:
            huggingface.save_config(path, new)
            vocab.save(new)
            (new / TIED).write_text(json.dumps(sorted(huggingface.tied_names(model))), encoding="utf-8")


def export(config: HuggingFaceSettings, run: Path) -> None:
    """Add the best weights to RUN/pretrained, LoRA's merged into them: transformers then opens the folder by itself.

    The folder is replaced atomically: after a crash it is the one before or the new one, each with its manifest.
    """
    best = model(config, run)
    checkpoint.load_weights(best, checkpoint.load(run / "best")[0], run / "best")
    with checkpoint.replacing(run / FOLDER, keep=0) as new:
        before = place(config, run)  # asked now: it may have been beside its place
        shutil.copytree(before, new, ignore=shutil.ignore_patterns(checkpoint.MANIFEST, WEIGHTS), dirs_exist_ok=True)
        huggingface.save(best, new, lora=config.lora_rank > 0)
