"""A trained run, opened: `load` reads its folder, `Run` uses what is in it."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from seqmixer.build import Dimensions, Metrics, build_model, build_task
from seqmixer.config import Config
from seqmixer.data import Split, Task, Vocabulary
from seqmixer.decoding import Search
from seqmixer.errors import ConfigError, RunError, unknown
from seqmixer.evaluation import Evaluation, evaluate
from seqmixer.functions import is_path
from seqmixer.kernels import set_matmul_precision
from seqmixer.rewards import BUILT_IN, Metric, parse
from seqmixer.runs.folder import read_dimensions, saved_vocabs
from seqmixer.storage import checkpoint
from seqmixer.storage.identity import read_config, require_intact, require_no_code, require_same_data
from seqmixer.training import device, epochs, read_log
from seqmixer.training.saving import progress_of, restored_best
from seqmixer.types import SequenceModel

if TYPE_CHECKING:
    from seqmixer.runs.explain import Explanation


@dataclass(frozen=True)
class Run:
    """A trained run, opened: its best model and what is needed to use it."""

    folder: Path
    config: Config
    model: SequenceModel
    dimensions: Dimensions
    source_vocab: Vocabulary | None
    target_vocab: Vocabulary
    trusted: bool = False  # whether Python code that its config names may be imported

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}: {self.config.model.described}, {self.config.algorithm.name})"

    @property
    def history(self) -> list[dict[str, Any]]:
        """A row for each epoch, as for `pandas.DataFrame`: epoch, stage, seconds, train_xent, valid_bleu, ..."""
        return [
            {key: event[key] for key in ("epoch", "stage", "rate", "best")}
            | {"seconds": sum(event["seconds"].values())}
            | {f"{part}_{name}": value for part in ("train", "valid") for name, value in event[part].items()}
            for event in epochs(read_log(self.folder))
        ]

    def generate(self, sources: Sequence[str] | Tensor, **search: Any) -> list[str]:
        """The best sentence for each line of text or row of features (n, D): see `search`, such as beam=5."""
        from seqmixer.runs.inference import write

        return [written.hypotheses[0] for written in write(self, sources, self.search(**search))]

    def search(self, metric: str | None = None, **chosen: Any) -> Search:
        """How sentences are found: `decoding.Search`, with the settings of the run where nothing else is asked for.

        Args:
            metric: the utility of mbr. Default: the metric that selected the best model.
        """
        chosen = {"unk": self.config.evaluation.unk} | chosen
        if not chosen.get("mbr"):
            if metric is not None:
                raise ConfigError(
                    f"metric = {metric!r} is the utility of MBR; set mbr to a number of samples, such as 32"
                )
            return Search(**chosen)
        names = [metric] if metric else self.config.metrics[:1]
        if code := next(filter(is_path, self.counted(names)), None):
            raise ConfigError(
                f"{code!r} is a Python function; MBR compares sentences on the device: choose a built-in metric"
            )
        nothing = Split([], [], [])
        words = Task("words", nothing, nothing, nothing, self.source_vocab, self.target_vocab, self.dimensions.length)
        (utility,) = self.metrics(self.task() if self.fitted(names) else words, names)
        return Search(utility=utility, **chosen)

    def task(self) -> Task:
        """The data of the run, read again: in its words, and with its T, also where the files have grown."""
        data = self.config.data.model_copy(update={"length": self.dimensions.length})
        return build_task(data, (self.source_vocab, self.target_vocab), self.config.text)

    def evaluate(self, split: str = "test", metrics: Sequence[str] = (), **search: Any) -> Evaluation:
        """Score a split by the metrics of the run, or by others; see `search`, such as beam=5."""
        task, searched = self.task(), self.search(**search)
        chosen = named_split(task, split)
        counted = {"train": task.train} if self.fitted(metrics) else {}
        require_same_data(self.folder, {split: chosen, **counted})
        return evaluate(
            self.model,
            task,
            chosen,
            *self.metrics(task, metrics),
            search=searched,
            batch_size=max(1, self.config.evaluation.batch_size // max(1, searched.mbr)),
        )

    def explain(self, source: str | Tensor, reference: str | None = None, **searches: Any) -> "Explanation":
        """What the model does with one line, or one row of features (D,): see `explain.Searches`."""
        from seqmixer.runs.explain import Searches, explain_one

        return explain_one(self, source, reference, Searches(**searches))

    def metrics(self, task: Task, names: Sequence[str] = ()) -> list[Metric]:
        """The metrics of the run, or these. Python code that only its config names is imported if it is trusted."""
        if not self.trusted and (not names or self.config.reward.python is not None):
            require_no_code(self.folder, names or self.config.metrics)
        return Metrics(self.config, task, self.folder).every(names or self.config.metrics)

    def fitted(self, names: Sequence[str] = ()) -> bool:
        """Whether one of the metrics of the run, or of these, is made of the training data."""
        return any(BUILT_IN[name].fitted for name in self.counted(names) & BUILT_IN.keys())

    def counted(self, names: Sequence[str] = ()) -> set[str]:
        """The parts of the metrics of the run, or of these, by name."""
        return {name for text in names or self.config.metrics for _, name in parse(text)}


def load(folder: Path | str, trust: bool = False) -> Run:
    """Open a run with its best model so far. `trust`: whether to import Python code that its config names."""
    folder = Path(folder)
    config = read_config(folder)
    require_intact(folder, config)
    dimensions = read_dimensions(folder)
    vocabs = saved_vocabs(folder)
    if vocabs is None:
        raise RunError(f"{folder}: target.vocab is missing; this is no complete run folder")
    model = build_model(config.model, dimensions, folder)
    checkpoint.load_weights(model, best_weights(folder), folder / "best")
    set_matmul_precision(config.training.precision)
    model.to(device(config.training.device)).eval()
    return Run(folder, config, model, dimensions, *vocabs, trusted=trust)


def best_weights(folder: Path) -> dict[str, Tensor]:
    """The weights of the best complete model of a run; a warning if a better one is lost."""
    best = folder / "best"
    done, best_epoch = progress_of(checkpoint.peek(folder / "last"), folder / "last")
    if not checkpoint.exists(best):
        gone = f"{best} is gone, though {done} epochs are done; put it back, or train anew"
        raise RunError(gone if done else f"{folder}: no model yet; the first is kept after the first epoch")
    tensors, state = checkpoint.load(best)
    found = restored_best(state, best).epoch
    if found < best_epoch:
        warnings.warn(f"{checkpoint.lost(best, found, best_epoch)}: that is used", stacklevel=3)
    return tensors


def named_split(task: Task, name: str) -> Split:
    if name not in task.splits:
        raise unknown("split", name, task.splits)
    return task.splits[name]
