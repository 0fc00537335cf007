"""The files of a run folder that say what its model is: dimensions, vocabularies, config."""

import json
from dataclasses import asdict
from pathlib import Path

from seqmixer import files
from seqmixer.build import Dimensions, preprocessing
from seqmixer.config import Config
from seqmixer.data import Task, Vocab, Vocabs, load_vocab
from seqmixer.errors import RunError
from seqmixer.storage import pretrained
from seqmixer.storage.identity import MANIFEST, damaged, read_config, read_task, seal


def read_dimensions(folder: Path) -> Dimensions:
    try:
        found: Dimensions = files.checked(read_task(folder).dimensions, Dimensions, str(folder))
        return found
    except RunError:
        raise damaged(folder) from None


def saved_vocabs(folder: Path) -> Vocabs | None:
    """The vocabularies of a run folder; None where there are none yet."""
    if pretrained.kept(folder):
        return pretrained.vocabs(read_config(folder), folder)
    source, target = folder / "source.vocab", folder / "target.vocab"
    if not target.is_file():
        return None
    config = read_config(folder)
    if config.text.raw:
        of_source, of_target = preprocessing(config.data, config.text)
        return load_vocab(of_source, source) if of_source else None, load_vocab(of_target, target)
    return Vocab.load(source) if source.is_file() else None, Vocab.load(target)


def write_identity(folder: Path, config: Config, task: Task, dimensions: Dimensions, parameters: int) -> None:
    """Write config, task and vocabularies. What is sealed never changes, so a crash here leaves a run that opens."""
    folder.mkdir(parents=True, exist_ok=True)
    files.write(folder / "config.toml", config.toml())
    if (folder / MANIFEST).exists():
        return
    text = {name: split.fingerprint for name, split in task.splits.items()}
    sizes = {name: len(split) for name, split in task.splits.items()}
    description = {"dimensions": asdict(dimensions), "text": text, "sizes": sizes, "parameters": parameters}
    files.write(folder / "task.json", json.dumps(description, indent=1))
    if not config.model.pretrained:  # else the tokenizer has them
        if task.source_vocab:
            task.source_vocab.save(folder / "source.vocab")
        task.target_vocab.save(folder / "target.vocab")
    seal(folder, config)
