import re
from itertools import product

import pytest

from seqmixer.config import Config
from seqmixer.errors import ConfigError
from seqmixer.experiments.sweep.space import Choices, Range, changed, combinations, read_space

TRAINING = (
    "training.baseline_lr, training.batch_size, training.clip, training.decay, training.device, "
    "training.epochs, training.examples, training.fast, training.keep, training.lr, training.min_lr, "
    "training.nonfinite, training.optimizer, training.patience, training.precision, training.rl_dropout, "
    "training.rl_lr, training.save_minutes, training.start, training.threads"
)


@pytest.fixture
def read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def call(text):
        (tmp_path / "space.toml").write_text(text)
        return read_space(tmp_path.joinpath("space.toml").relative_to(tmp_path), Config())

    return call


def test_settings_may_be_written_by_full_name_or_below_their_table(read):
    space = read('"model.hidden" = [8, 16]\nseed = [1, 2]\n[training]\nlr = { low = 1e-4, high = 1e-2, log = true }\n')
    assert space == {
        "model.hidden": Choices((8, 16)),
        "seed": Choices((1, 2)),
        "training.lr": Range(1e-4, 1e-2, log=True),
    }


def test_a_grid_is_the_product_of_all_values(read):
    space = read(
        '"model.hidden" = { low = 8, high = 20, step = 4 }\n"training.lr" = [0.1, 0.2]\n"model.dropout" = { low = 0.0, high = 0.5, step = 0.2 }\n'
    )
    cells = combinations(space, "here")
    wanted = product([8, 12, 16, 20], [0.1, 0.2], [0.0, 0.2, 0.4])
    assert [tuple(cell.values()) for cell in cells] == list(wanted)
    assert all(list(cell) == ["model.hidden", "training.lr", "model.dropout"] for cell in cells)


def test_a_trial_differs_from_the_base_only_in_what_is_searched():
    base = Config()
    config = Config.parse(changed(base, {"training.lr": 0.5, "seed": 9}))
    assert (config.training.lr, config.seed) == (0.5, 9)
    assert Config.parse(changed(config, {"training.lr": base.training.lr, "seed": base.seed})) == base


def test_settings_that_only_clash_with_another_are_left_to_the_trials(read):
    assert read('"model.window" = [3, 4]')  # an even window is refused when a config is made of it


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'space.toml: no setting to search; write, for example, "training.lr" = [0.001, 0.002]'),
        ("a = ", "space.toml: not TOML: Invalid value (at end of document)"),
        ('"training.lrr" = [1, 2]', f"space.toml: unknown setting 'training.lrr'. Did you mean 'training.lr'? Known: {TRAINING}."),
        ('"training.lrr" = [1]', f"space.toml: unknown setting 'training.lrr'. Did you mean 'training.lr'? Known: {TRAINING}."),
        ('"training.lr.low" = [1, 2]', f"space.toml: unknown setting 'training.lr.low'. Did you mean 'training.lr'? Known: {', '.join(sorted(['name', 'seed', *(f'{t}.{n}' for t, s in Config().model_dump().items() if isinstance(s, dict) for n in s)]))}."),
        ('"training.lr" = 0.1', "space.toml: training.lr = 0.1: write its choices, [1, 2, 3], or its range, {low = 1, high = 3}"),
        ('"training.lr" = [0.1]', "space.toml: training.lr = [0.1]: write two or more choices, all different"),
        ('"training.lr" = [0.1, 0.1]', "space.toml: training.lr = [0.1, 0.1]: write two or more choices, all different"),
        ('"data.train" = [["a", "b"], ["c", "d"]]', "space.toml: data.train: ['a', 'b'] cannot be a choice; choices are numbers, strings, true and false"),
        ('"training.lr" = [0.1, -1.0]', "space.toml: training.lr = -1.0: Input should be greater than 0"),
        ('"training.optimizer" = ["sgd", "adm"]', "space.toml: training.optimizer = 'adm': Input should be 'sgd' or 'adam'"),
        ('"training.lr" = {low = 0.1, hihg = 1.0}', "space.toml: training.lr: unknown part of a range 'hihg'. Did you mean 'high'? Known: high, log, low, step."),
        ('"training.lr" = {low = 0.1}', "space.toml: training.lr: a range has a low and, above it, a high; got low = 0.1"),
        ('"training.lr" = {low = 0.2, high = 0.1}', "space.toml: training.lr: a range has a low and, above it, a high; got low = 0.2, high = 0.1"),
        ('"training.lr" = {low = "0.2", high = 0.1}', "space.toml: training.lr: low = '0.2' is not a number"),
        ('"training.lr" = {low = 0.1, high = inf}', "space.toml: training.lr: high = inf is not a number"),
        ('"training.lr" = {low = 0.1, high = 0.2, log = 1}', "space.toml: training.lr: log = 1; write true or false"),
        ('"model.dropout" = {low = 0.0, high = 0.2, log = true}', "space.toml: model.dropout: with log = true a range begins above 0 and has no step; got low = 0.0, high = 0.2, log = True"),
        ('"model.dropout" = {low = 0.0, high = 0.2, step = 0.3}', "space.toml: model.dropout: step must be above 0 and fit between low and high; got low = 0.0, high = 0.2, step = 0.3"),
        ('"training.lr" = {low = 1, high = 2, step = 0.5}', "space.toml: training.lr: step = 0.5 with integers; write low and high with a point too"),
        ('"training.lr" = {low = 0.0, high = 0.2}', "space.toml: training.lr = 0.0: Input should be greater than 0"),
        ('"model.hidden" = {low = 8.0, high = 16.0}', "space.toml: model.hidden = 8.000000000000002: Input should be a valid integer"),
        ('name = ["a", "b"]', "space.toml: name cannot be searched: every trial has its own"),
        ('"evaluation.metrics" = ["bleu", "chrf"]', "space.toml: evaluation.metrics cannot be searched: the scores of its trials would not compare"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_space_is_said_in_one_line(read, text, message):
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        read(text)


def test_a_space_that_is_not_there_is_said_so(tmp_path):
    message = f"{tmp_path / 'no.toml'}: no such file; --search names a TOML file of settings and their choices"
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        read_space(tmp_path / "no.toml", Config())


@pytest.mark.parametrize("found", [Range(0.1, 0.2), Range(1, 8, log=True)])
def test_a_grid_refuses_a_range_without_steps(found):
    message = "here: training.lr: a grid needs choices, or a range with a step; this range has no end of values"
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        combinations({"training.lr": found}, "here")
