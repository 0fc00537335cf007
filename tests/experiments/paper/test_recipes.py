import json
import re
from pathlib import Path

import pytest

from seqmixer.config import Config
from seqmixer.errors import ConfigError, DataError
from seqmixer.experiments.paper.recipes import CONFIGS, QUICK, TASKS, chosen, experiments, read_card, recipe_file
from seqmixer.experiments.paper.results import published
from seqmixer.schedules import forced_words

PAPER = {  # task: model, hidden, T, reward; Secs. 4.1-4.3
    "summarization": ("elman", 128, 15, "rouge2"),
    "translation": ("lstm", 256, 25, "bleu"),
    "captioning": ("lstm", 512, 15, "bleu_best"),
}


def recipe(task, kind="literal", settings=()):
    (found,) = experiments(task, kind, None, settings, Path("out"))
    return found


@pytest.mark.parametrize("task", TASKS)
def test_literal_recipes_are_the_papers(task):
    config = recipe(task).config
    assert (config.model.name, config.model.hidden, config.data.length, config.reward.name) == PAPER[task]
    training = config.training
    assert (training.optimizer, training.lr, training.decay, training.batch_size, training.clip) == ("sgd", 0.2, 1.2, 32, 10)  # fmt: skip
    assert (config.model.dropout, config.model.init, training.rl_lr) == (0, 0.05, None)
    schedule = published(task).schedule
    algorithm = config.algorithm
    assert (algorithm.xent_epochs, algorithm.mixed_epochs, algorithm.delta) == (
        schedule["xent_epochs"], schedule["mixed_epochs"], schedule["delta"],
    )  # fmt: skip
    forced = forced_words(config.data.length, algorithm.delta, algorithm.xent_epochs, algorithm.mixed_epochs)
    assert forced[-1] == 1  # "finishing with s = 1"
    dad = Config.load(recipe_file(task, "literal"), ["algorithm.name=dad"]).algorithm
    n = len(forced) - algorithm.xent_epochs
    truth = [1.0] * algorithm.xent_epochs + [1 - i / n for i in range(n)]  # linear over MIXER's stages
    assert dad.truth(len(forced)) == pytest.approx(truth)


def test_dictionaries_are_the_papers():
    summarization, translation, captioning = (recipe(task).config.data for task in TASKS)
    assert (summarization.source_max_size, summarization.target_max_size) == (12321, 6828)
    assert (translation.source_min_count, translation.target_min_count, captioning.target_min_count) == (3, 3, 3)


@pytest.mark.parametrize("task", TASKS)
def test_tuned_and_quick_recipes_have_the_model_and_the_algorithm_of_the_literal_one(task):
    literal = recipe(task).config
    for kind in ("tuned", "quick"):
        config = recipe(task, kind).config
        same = {"dropout": literal.model.dropout, "init": literal.model.init}
        assert config.model.model_copy(update=same) == literal.model
        assert (config.algorithm.name, config.reward, config.data.length) == (
            "mixer",
            literal.reward,
            literal.data.length,
        )
        assert config.training.rl_lr < config.training.lr
    assert recipe(task, "tuned").config.data == literal.data


def test_every_value_of_a_literal_recipe_has_its_reason_beside_it():
    for task in TASKS:
        lines = (CONFIGS / f"{task}.toml").read_text().splitlines()
        settings = [line for line in lines if " = " in line and not line.startswith(("#", "name"))]
        bare = [line.split(" = ")[0] for line in settings if "#" not in line]
        assert set(bare) <= {"task", "valid", "test", "skip_empty", "layers"}, task


@pytest.mark.parametrize(
    ("file", "folder", "stem"),
    [
        ("captioning-eos.toml", "captioning-eos", "paper-captioning-eos"),
        ("mine.toml", "captioning-mine", "paper-captioning-mine"),
        ("captioning-tuned.toml", "captioning-captioning-tuned", "paper-captioning-captioning-tuned"),  # not seqmixer's
    ],
)
def test_a_recipe_of_the_users_has_a_folder_of_its_own(tmp_path, file, folder, stem):
    (tmp_path / file).write_text((CONFIGS / "captioning-tuned.toml").read_text())
    found = recipe("captioning", str(tmp_path / file))
    assert (found.folder, found.stem) == (Path("out") / folder, stem)


def test_published_scores_are_the_papers():
    assert published("summarization").scores == {"xent": 13.01, "dad": 12.18, "e2e": 12.78, "mixer": 16.22}
    assert published("translation").scores == {"xent": 17.74, "dad": 20.12, "e2e": 17.77, "mixer": 20.73}
    assert published("captioning").scores == {"xent": 27.8, "dad": 28.16, "e2e": 26.42, "mixer": 29.16}
    cross = published("summarization").cross
    assert cross["bleu"] == {"xent": 8.16, "mixer": 5.80, "mixer-bleu": 9.32}
    assert cross["rouge2"]["mixer-bleu"] == 15.1
    assert all(published(task).where for task in TASKS)


def test_all_is_every_task_in_a_folder_of_its_own():
    found = experiments("all", "quick", None, (), Path("out"))
    assert [each.task for each in found] == list(TASKS)
    assert [each.folder for each in found] == [Path("out") / f"{task}-quick" for task in TASKS]
    assert [each.recipe.path.stem for each in found] == [QUICK[task] for task in TASKS]
    assert [each.stem for each in found] == [f"paper-{task}-quick" for task in TASKS]
    assert recipe("translation", "tuned").stem == "paper-translation"


def test_mixer_on_bleu_is_run_where_the_score_is_another():
    assert [m.name for m in recipe("summarization").recipe.methods] == [
        "xent",
        "dad",
        "e2e",
        "mixer",
        "mixer-bleu",
        "reinforce",
    ]
    assert [m.name for m in recipe("translation").recipe.methods] == ["xent", "dad", "e2e", "mixer", "reinforce"]


def refused(kind, message, call, *arguments):
    with pytest.raises(kind, match=f"^{re.escape(message)}$"):
        call(*arguments)


def test_unknown_names_are_refused():
    where = Path("out")
    refused(ConfigError, "unknown task 'translatoin'. Did you mean 'translation'? Known: all, captioning, summarization, translation.",
            experiments, "translatoin", "tuned", None, (), where)  # fmt: skip
    refused(ConfigError, "unknown recipe 'tund'. Did you mean 'tuned'? Known: FILE.toml, literal, quick, tuned.",
            experiments, "translation", "tund", None, (), where)  # fmt: skip
    refused(ConfigError, "unknown method 'mixer-bleu'. Did you mean 'mixer'? Known: dad, e2e, mixer, reinforce, xent.",
            experiments, "translation", "tuned", "xent,mixer-bleu", (), where)  # fmt: skip
    refused(ConfigError, "--methods dad, mixer: xent is missing; the tables compare MIXER with XENT",
            chosen, "dad, mixer", Config())  # fmt: skip
    path = CONFIGS / "translation-tuned.toml"
    refused(ConfigError, f"{path}: evaluation.metrics = ['cider']; the paper's tables have bleu or rouge2",
            experiments, "translation", "tuned", None, ('evaluation.metrics=["cider"]',), where)  # fmt: skip


def test_missing_data_is_named_with_what_to_do(tmp_path, monkeypatch):
    monkeypatch.delenv("SEQMIXER_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "coco").mkdir()
    (tmp_path / "coco/captions.json.gz").touch()
    refused(DataError, f"no such files: {tmp_path}/coco/features_u8.npz; fix the names, or data.folder: its default is the variable SEQMIXER_DATA, "
            "which is not set", read_card, recipe("captioning", "tuned"))  # fmt: skip
    monkeypatch.setenv("SEQMIXER_DATA", "/no/where")
    names = [
        f"/no/where/multi30k-de-en/{split}.{side}.gz" for split in ("train", "valid", "test") for side in ("de", "en")
    ]
    refused(DataError, f"no such files: {', '.join(names)}; fix the names, or data.folder: its default is the variable SEQMIXER_DATA, "
            "which is /no/where", read_card, recipe("translation", "quick"))  # fmt: skip


def test_a_test_split_too_small_for_the_papers_protocol_is_refused_before_training(tmp_path):
    (tmp_path / "a").write_text("x y z\n" * 20)
    files = json.dumps([str(tmp_path / "a")] * 2)
    settings = tuple(f"data.{split}={files}" for split in ("train", "valid", "test"))
    experiment = recipe("translation", "tuned", (*settings, "data.source_min_count=1"))
    refused(DataError, f"{experiment.recipe.path}: the paper's protocol scores no sentence of the test split: no length of source has "
            "800 target words or more; give a larger test split",
            read_card, experiment)  # fmt: skip


def test_a_schedule_without_a_stage_for_reinforce_is_refused_before_training(tmp_path):
    experiment = recipe("translation", "literal", (*many(tmp_path), "data.length=3"))
    refused(ConfigError, f"{experiment.recipe.path}: no sample would ever be rewarded: T = 3, algorithm.delta = 3 and algorithm.mixed_epochs = 5 "
            "leave no stage for REINFORCE; lower delta",
            read_card, experiment)  # fmt: skip


def many(folder):
    """Settings that name a file of 300 sentences as all there is."""
    (folder / "a").write_text("x y z\n" * 285 + "x y z x\n" * 15)
    files = json.dumps([str(folder / "a")] * 2)
    return tuple(f"data.{split}={files}" for split in ("train", "valid", "test"))


def test_a_card_counts_the_data(tmp_path):
    card = read_card(recipe("translation", "tuned", (*many(tmp_path), "data.length=4")))
    assert (card.train, card.valid, card.test, card.length, card.covered) == (300, 300, 300, 4, 0.95)
    assert (card.source_words, card.target_words) == (7, 7)  # three words and four specials
