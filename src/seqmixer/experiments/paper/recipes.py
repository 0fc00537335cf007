"""Which config, which methods and which folder an experiment has, and whether its data is there."""

from dataclasses import dataclass
from pathlib import Path

from seqmixer import configs
from seqmixer.config import Config
from seqmixer.data import Task, coverage
from seqmixer.errors import ConfigError, DataError, unknown
from seqmixer.evaluation.scoring import LEAST, METRICS, kept
from seqmixer.experiments.grid import Recipe, read_once
from seqmixer.experiments.methods import EVERY, NEW, OLD, PROPOSED, REFERENCE, RL, Method
from seqmixer.experiments.paper.beams import reported
from seqmixer.runs import located

CONFIGS = Path(__file__).parents[2] / "configs" / "paper"
TASKS = ("summarization", "translation", "captioning")
QUICK = {"summarization": "gigaword-sample", "translation": "multi30k", "captioning": "flickr8k"}
RECIPES = ("tuned", "literal", "quick")


@dataclass(frozen=True)
class Experiment:
    """One task of the paper with one recipe."""

    task: str  # the paper's
    kind: str  # tuned, literal, quick, or the name of the user's file
    recipe: Recipe
    config: Config
    folder: Path  # of its runs and its report
    stem: str  # what its files are called


@dataclass(frozen=True)
class DataSizes:
    """The data of an experiment in numbers."""

    train: int
    valid: int
    test: int
    source_words: int | None  # known to the model; None for images
    target_words: int
    length: int  # T
    covered: float  # the share of training targets that T holds

    @classmethod
    def of(cls, task: Task) -> "DataSizes":
        return cls(
            len(task.train),
            len(task.valid),
            len(task.test),
            len(task.source_vocab) if task.source_vocab else None,
            len(task.target_vocab),
            task.length,
            coverage(task.train, task.length),
        )


def experiments(task: str, recipe: str, methods: str | None, settings: tuple[str, ...], out: Path) -> list[Experiment]:
    """The experiment of one task, or with "all" of the three; nothing is read but their configs."""
    if task not in (*TASKS, "all"):
        raise unknown("task", task, (*TASKS, "all"))
    return [experiment(each, recipe, methods, settings, out) for each in (TASKS if task == "all" else [task])]


def experiment(task: str, recipe: str, methods: str | None, settings: tuple[str, ...], out: Path) -> Experiment:
    path = recipe_file(task, recipe)
    config = Config.load(path, settings)
    require_scored(config, path)
    kind = recipe if recipe in RECIPES else own_kind(task, path)
    rows = Recipe(config.name, path, settings, chosen(methods, config))
    stem = f"paper-{task}" + ("" if kind == "tuned" else f"-{kind}")
    return Experiment(task, kind, rows, config, out / f"{task}-{kind}", stem)


def own_kind(task: str, path: Path) -> str:
    """The name of a user's recipe, without its task: captioning-eos.toml is the eos recipe of captioning."""
    short = path.stem.removeprefix(f"{task}-")
    return path.stem if short in RECIPES else short  # theirs have folders of their own


def recipe_file(task: str, recipe: str) -> Path:
    """A recipe that comes with seqmixer, or a file of the user's."""
    if recipe.endswith(".toml"):
        return configs.found(recipe)
    if recipe not in RECIPES:
        raise unknown("recipe", recipe, (*RECIPES, "FILE.toml"))
    name = {"tuned": f"{task}-tuned", "literal": task, "quick": QUICK[task]}[recipe]
    return configs.names()[f"paper/{name}"]


def require_scored(config: Config, path: Path) -> None:
    """Refuse a recipe whose metric the paper's tables do not have."""
    metric, images = config.metrics[0], config.data.task == "captions"
    known = [reported("", True, protocol)[0] for protocol in ("standard", "paper")] if images else METRICS["paper"]
    if metric not in known:
        names = " or ".join(known) + " for captions" * images
        raise ConfigError(f"{path}: evaluation.metrics = [{metric!r}]; the paper's tables have {names}")


def chosen(names: str | None, config: Config) -> tuple[Method, ...]:
    """The methods with these names, separated by commas. Default: all; MIXER on BLEU where the score is another."""
    every = tuple(method for method in EVERY if method.only in (None, config.metrics[0]))
    if names is None:
        return every
    known = {method.name: method for method in every}
    wanted = [name.strip() for name in names.split(",")]
    for name in wanted:
        if name not in known:
            raise unknown("method", name, known)
    for name in (REFERENCE, PROPOSED):
        if name not in wanted:
            raise ConfigError(f"--methods {names}: {name} is missing; the tables compare {NEW} with {OLD}")
    return tuple(method for method in every if method.name in wanted)


def read_card(experiment: Experiment) -> DataSizes:
    """Read the data once before hours are spent on it."""
    config, path = experiment.config, experiment.recipe.path
    task = read_once(located(config).data, config.text)
    meta = task.test.meta
    if task.features is None and not kept([str(e["source"]) for e in meta], [e["references"] for e in meta]):
        raise DataError(
            f"{path}: the paper's protocol scores no sentence of the test split: no length of source has {LEAST} "
            "target words or more; give a larger test split"
        )
    if config.algorithm.schedule(task.length)[-1] == task.length:
        raise ConfigError(
            f"{path}: no sample would ever be rewarded: T = {task.length}, algorithm.delta = {config.algorithm.delta} "
            f"and algorithm.mixed_epochs = {config.algorithm.mixed_epochs} leave no stage for {RL}; lower delta"
        )
    return DataSizes.of(task)
