"""Run folders: `train` makes one from a config. Everything after training reads only the folder (opening.py).

config.toml  task.json  source.vocab  target.vocab  manifest.json    what the run is
log.jsonl  samples.txt  last/  best/  scores.json  test.txt  test.jsonl    what came of it
"""

import json
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from seqmixer import files
from seqmixer.algorithms import Algorithm, Parts
from seqmixer.build import (
    Dimensions,
    Metrics,
    build_algorithm,
    build_model,
    build_task,
    run_length,
)
from seqmixer.config import TOYS, Config, HuggingFaceSettings
from seqmixer.data import Task, coverage, in_order
from seqmixer.decoding import Search
from seqmixer.errors import RewardError, RunError
from seqmixer.evaluation import SCORES, Scores, TestScore, evaluate, write_sentences
from seqmixer.parallel import ranks
from seqmixer.rewards import Metric
from seqmixer.runs.folder import saved_vocabs, write_identity
from seqmixer.runs.opening import Run, best_weights
from seqmixer.runs.threads import as_begun, fewest, in_words, measured, threads, with_threads
from seqmixer.schedules import stages
from seqmixer.storage import checkpoint, pretrained
from seqmixer.storage.identity import (
    alone_in,
    read_config,
    require_intact,
    require_same_config,
    require_same_data,
)
from seqmixer.training import Callback, Position, Training, device, on_screen, read_log
from seqmixer.training import epochs as epochs_of
from seqmixer.training.saving import restored_best
from seqmixer.types import Reward, SequenceModel


def train(
    config: Config | Path | str,
    out: Path | str = "runs",
    callbacks: Sequence[Callback] | None = None,
    task: Task | None = None,
) -> Run:
    """Train to the end and score the test split. Called again after a stop, it resumes; once done, it only scores.

    Args:
        config: or its file, or the name of one that comes with seqmixer.
        callbacks: called while it trains. Default: the terminal's, or the notebook's, progress.
        task: the data of config.data, if the caller has read it.
    """
    config = config if isinstance(config, Config) else Config.load(config)
    callbacks = [on_screen()] if callbacks is None else callbacks
    folder = Path(out) / config.name
    ranks.start(config.training.device)
    device(config.training.device)  # refused before anything is read or written
    with alone_in(folder), threads(config.training.threads):
        return train_alone(located(config), folder, callbacks, task)


def train_alone(config: Config, folder: Path, callbacks: Sequence[Callback], task: Task | None) -> Run:
    require_same_config(folder, config)
    config = as_begun(config, folder)
    task = task or task_of(config, folder)
    dimensions = Dimensions.of(task)
    torch.manual_seed(config.seed)
    goes_on = folder if checkpoint.usable(folder / "last") else None
    epochs = run_length(config, task.length)
    require_room_for(epochs, folder, goes_on is not None)
    model = build_model(config.model, dimensions, goes_on)
    if config.training.start is not None and not goes_on:
        start_from(model, task, Path(config.training.start))
    require_same_data(folder, task.splits)
    with ranks.first_rank_first():  # what they count beforehand is kept in the folder
        metrics = Metrics(config, task, folder)
        reward, chosen = metrics.reward, metrics.chosen
    parts = Parts(reward, model.features, task.length, len(task.target_vocab), epochs)
    algorithm = build_algorithm(config.algorithm, parts)
    if isinstance(config.model, HuggingFaceSettings):
        pretrained.require_positions(pretrained.place(config.model, goes_on), task)
    rewards = [metric.reward for metric in chosen if metric.sentence]
    if algorithm.reward is not None and algorithm.reward not in rewards:
        rewards.append(algorithm.reward)
    for each in rewards:
        try_out(each, task)
    samples = any(algorithm.stage(epoch).rewarded for epoch in range(epochs))
    if measurements := measured(model, task, config.training, samples):
        config = with_threads(config, fewest(measurements))
    ranks.wait()  # all have read what was there before
    if ranks.first():
        write_identity(folder, config, task, dimensions, parameters(model))
        if isinstance(config.model, HuggingFaceSettings):
            pretrained.keep(config.model.path, model, task.target_vocab, folder)
    training = Training(
        model,
        algorithm,
        task,
        folder,
        epochs=epochs,
        settings=config.training,
        decode_batch=config.evaluation.batch_size,
        search=Search(unk=config.evaluation.unk),
        metrics=chosen,
        seed=config.seed,
        callbacks=callbacks,
    )
    for line in description(config, task, model, algorithm, epochs):
        training.note(line)
    if measurements:
        training.note(in_words(measurements))
        training.log({"event": "threads", "threads": config.training.threads, "seconds": measurements})
    position = training.run()  # leaves the model with the weights of best/
    run = Run(folder, config, model.eval(), dimensions, task.source_vocab, task.target_vocab, trusted=True)
    write_scores(run, task, chosen, position)
    if isinstance(config.model, HuggingFaceSettings) and ranks.first():
        pretrained.export(config.model, folder)
    return run


def require_room_for(planned: int, folder: Path, goes_on: bool) -> None:
    """Refuse to lose epochs that a run folder has behind it."""
    done = len(epochs_of(read_log(folder)))
    best = checkpoint.peek(folder / "best")
    behind = max(done, restored_best(best, folder / "best").epoch if best else 0)
    if behind > 1 and not goes_on:
        raise RunError(
            f"{folder} has {behind} epochs behind it, but no checkpoint (last) that can be used; put that back, or "
            "choose another name (--set name=...)"
        )
    if checkpoint.exists(folder / "last") and not goes_on:  # it will do again, bit for bit, what little it did
        warnings.warn(f"{folder / 'last'} is damaged, of the first epoch; the run starts again", stacklevel=2)
    if done > planned:
        raise RunError(
            f"{folder} has {done} epochs behind it, and {planned} are asked for; ask for {done} or more, or choose "
            "another name (--set name=...)"
        )


def task_of(config: Config, folder: Path | None = None) -> Task:
    """The data of a config, in the words of the run in `folder` if it has some, or else of the pretrained model."""
    saved = saved_vocabs(folder) if folder else None
    return build_task(config.data, saved or pretrained.vocabs(config), config.text)


def try_out(reward: Reward, task: Task) -> None:
    """Reward some references, so that a reward that fails does so now and not after all epochs of XENT."""
    batch = next(in_order(task.valid, 4, task.length))
    r = reward(batch.rollout(batch.target))  # (B,)
    if not r.isfinite().all():
        raise RewardError(f"the reward gives {r.tolist()} for four references; it must be a finite number")


def located(config: Config) -> Config:
    """The config with absolute paths, so that the run can be opened and resumed from anywhere."""
    folder = "." if config.data.task in TOYS else str(Path(config.data.folder).resolve())
    path, model = config.model.pretrained, config.model
    if path and Path(path).is_dir():
        model = model.model_copy(update={"path": str(Path(path).resolve())})
    start = config.training.start
    changes = {
        "data": config.data.model_copy(update={"folder": folder}),
        "model": model,
        "training": config.training.model_copy(update={"start": start and str(Path(start).resolve())}),
    }
    return config.model_copy(update=changes)


def start_from(model: SequenceModel, task: Task, folder: Path) -> None:
    """Give a new model the best weights of another run, which must have the same shape and vocabularies."""
    if not checkpoint.exists(folder / "best"):
        raise RunError(f"training.start = {str(folder)!r}: no model there; name the folder of a run")
    require_intact(folder, read_config(folder))
    if saved_vocabs(folder) != (task.source_vocab, task.target_vocab):
        raise RunError(
            f"training.start = {str(folder)!r}: its vocabularies are not those of this run's data; the same id would "
            "be another word. Train on the same data"
        )
    checkpoint.load_weights(model, best_weights(folder), folder / "best")


def write_scores(run: Run, task: Task, metrics: Sequence[Metric], position: Position) -> None:
    """scores.json, test.txt and test.jsonl: the test scores of the best model, greedy search, and what it wrote."""
    test = evaluate(
        run.model, task, task.test, *metrics, search=run.search(), batch_size=run.config.evaluation.batch_size
    )
    if not ranks.first():
        return
    first, *others = test.scored
    more = {each.metric: TestScore(each.score, each.signature) for each in others}
    best, epoch = position.best, position.best_epoch
    scores = Scores(first.metric, first.score, best, epoch, first.signature, more, test.effects)
    files.write(run.folder / SCORES, json.dumps(asdict(scores), indent=1))
    files.write(run.folder / "test.txt", "\n".join(test.hypotheses) + "\n")
    write_sentences(run.folder, test)
    if run.config.text.raw:
        for number, lines in enumerate(reference_files(test.references), 1):
            files.write(run.folder / f"test.ref{number if number > 1 else ''}.txt", "\n".join(lines) + "\n")


def reference_files(references: Sequence[Sequence[str]]) -> Iterator[list[str]]:
    """The lines of files with one reference of each sentence; where one has fewer than others, its first comes again.

    >>> list(reference_files([["a", "b"], ["c"]]))
    [['a', 'c'], ['b', 'c']]
    """
    for i in range(max(map(len, references))):
        yield [several[i] if i < len(several) else several[0] for several in references]


def parameters(model: SequenceModel) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def description(config: Config, task: Task, model: SequenceModel, algorithm: Algorithm, epochs: int) -> Iterator[str]:
    """What the run is going to do, for its reader."""
    sizes = " / ".join(f"{len(split):,}" for split in task.splits.values())
    covered = coverage(task.train, task.length)
    words = f"{len(task.target_vocab):,} target words"
    if task.source_vocab:
        words = f"{len(task.source_vocab):,} source and {words}"
    yield f"{config.data.task}: {sizes} examples, {words}, T = {task.length} covers {covered:.1%} of the targets"
    yield f"{config.model.described}: {parameters(model):,} parameters"
    for label, first, last in stages([algorithm.stage(epoch).label for epoch in range(epochs)]):
        yield f"  {f'epoch {first}' if first == last else f'epochs {first}-{last}'}: {label}"
