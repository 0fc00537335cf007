import re
import tomllib

import pytest

from seqmixer.algorithms import ALGORITHMS, SampledSettings
from seqmixer.config import Config, documentation
from seqmixer.errors import ConfigError
from seqmixer.settings import RENAMED, OneOf

SAMPLED = [name for name, kind in ALGORITHMS.items() if issubclass(kind.Settings, SampledSettings)]


def load(tmp_path, text, *overrides):
    path = tmp_path / "run.toml"
    path.write_text(text)
    return Config.load(path, overrides)


def test_a_file_an_override_and_the_defaults_make_a_config(tmp_path):
    config = load(tmp_path, 'name = "x"\n[model]\nhidden = 8\n', "model.layers=2", "reward.name=my:f", "data.folder=/d")
    assert (config.name, config.model.hidden, config.model.layers) == ("x", 8, 2)
    assert (config.reward.name, config.data.folder) == ("my:f", "/d")
    assert config.training == Config().training


def test_whole_numbers_pass_for_numbers_and_the_largest_are_allowed(tmp_path):
    config = load(
        tmp_path,
        "seed = 9223372036854775807\n[data]\ntask = 'captions'\nlength = 10_000",
        "training.lr=1",
        "training.threads=1024",
    )
    assert (config.seed, config.data.length, config.training.lr, config.training.threads) == (
        2**63 - 1,
        10_000,
        1.0,
        1024,
    )


def test_a_name_may_have_folders_of_its_own(tmp_path):
    assert load(tmp_path, "", "name=a/b..c/.d").name == "a/b..c/.d"


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/../b", "a/./b", "a//b", "a/", "/tmp/x"])
def test_a_name_that_leaves_the_folder_of_runs_is_refused(tmp_path, name):
    with pytest.raises(ConfigError) as error:
        load(tmp_path, "", f"name={name}")
    message = f"name = {name!r}: a run's folder is OUT/name; write a name such as 'run' or 'tries/run'"
    assert str(error.value) == f"{tmp_path / 'run.toml'}: {message}"


def test_a_config_written_as_toml_reads_back_the_same(tmp_path):
    config = load(tmp_path, "[training]\nrl_lr = 1e-4\n[data]\ntrain = ['a b', 'c']\n")
    assert load(tmp_path, config.toml()) == config


def test_the_documentation_is_toml_with_every_default():
    text = documentation()
    assert Config.parse(tomllib.loads(text)) == Config()
    for section, field in Config.model_fields.items():
        kinds = [several.kinds.values() for several in field.metadata if isinstance(several, OneOf)]
        for kind in kinds[0] if kinds else [field.annotation]:
            for name in getattr(kind, "model_fields", {section: field}):
                assert re.search(rf"^(# )?{name} =", text, re.MULTILINE), name
    assert max(map(len, text.splitlines())) <= 110


def test_the_data_folder_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("SEQMIXER_DATA", "/somewhere")
    assert Config().data.model_copy().folder == Config.parse({"data": {}}).data.folder == "/somewhere"


MODEL = "model.dropout, model.hidden, model.init, model.layers, model.name, model.variant, model.window"


@pytest.mark.parametrize(
    ("text", "overrides", "message"),
    [
        ("[model]\nhiden = 3", [], f"unknown setting 'model.hiden'. Did you mean 'model.hidden'? Known: {MODEL}."),
        ("", ["model.hiden=3"], f"unknown setting 'model.hiden'. Did you mean 'model.hidden'? Known: {MODEL}."),
        ("[modle]", [], "unknown setting 'modle'. Did you mean 'model'? Known: algorithm, data, evaluation, model, name, "
                        "reward, seed, text, training."),
        ("[model]\nhidden = 0", [], "model.hidden = 0: Input should be greater than or equal to 1"),
        ("[model]\nname = 'lstn'", [], "unknown model.name 'lstn'. Did you mean 'lstm'? Known: elman, gru, huggingface, lstm, transformer."),
        ("[model]\nname = 'transformer'\nhidden = 12", [],
         "model.hidden must be a multiple of twice model.heads; got model.hidden = 12, model.heads = 4"),
        ("[model]\nwindow = 4", [], "model.window must be odd, so that it has a centre; got 4"),
        ("[data]\ntask = 'text'\ntrain = ['a']", [],
         "data.train names 1 files; with data.task = 'text' it names a source file and at least one reference file"),
        ("[algorithm]\nname = 'dad'\nannealing = 'exponential'\nannealing_k = 20", [],
         "algorithm.annealing_k must be below 1 with exponential, got 20.0"),
        ("[algorithm]\nname = 'dad'\nannealing = 'exponential'", [],
         "algorithm.annealing_k is missing; algorithm.annealing = 'exponential' needs it"),
        ("[algorithm]\nname = 'dad'\nannealing = 'inverse-sigmoid'\nannealing_k = 0.5", [],
         "algorithm.annealing_k must be at least 1 with inverse-sigmoid, got 0.5"),
        ("seed = 99999999999999999999", [],
         "seed = 99999999999999999999: Input should be less than or equal to 9223372036854775807"),
        ("", ["data.seed=9223372036854775808"],
         "data.seed = 9223372036854775808: Input should be less than or equal to 9223372036854775807"),
        ("[data]\nlength = 100000000000", [], "data.length = 100000000000: Input should be less than or equal to 10000"),
        ("[training]\nthreads = 100000", [], "training.threads = 100000: Input should be less than or equal to 1024"),
        ("[model]\nhidden = 100000000000000000000", [], "model.hidden = 100000000000000000000: Input should be less than or equal to 1000000"),
        ("[training]\nkeep = 100000000000", [], "training.keep = 100000000000: Input should be less than or equal to 1000"),
        ("[reward]\nseconds = 1e300", [], "reward.seconds = 1e+300: Input should be less than or equal to 1000000"),
        ('name = "a\\u0000b"', [], "name = 'a\\x00b' has characters that are no text; remove them"),
        ('[data]\ntask = "text"\ntrain = ["a\\u0000", "b"]\nvalid = ["a", "b"]\ntest = ["a", "b"]', [],
         "data.train = 'a\\x00' has characters that are no text; remove them"),
        ("", ["name=\udcff"], "name = '\\udcff' has characters that are no text; remove them"),
        ("", ["algorithm.xent_epochs=1000000000"], "algorithm.xent_epochs = 1000000000: Input should be less than or equal to 100000"),
        ("[training]\nlr = inf", [], "training.lr = inf: Input should be a finite number"),
        ("", ["algorithm.kl=nan"], "algorithm.kl = nan: Input should be a finite number"),
        ("[reward]\nseconds = inf", [], "reward.seconds = inf: Input should be a finite number"),
        ("[model]\nhidden = true", [], "model.hidden = True: Input should be a valid integer"),
        ("[model]\nhidden = '64'", [], "model.hidden = '64': Input should be a valid integer"),
        ("[model]\nhidden = 64.0", [], "model.hidden = 64.0: Input should be a valid integer"),
        ("[model]\ninit = true", [], "model.init = True: Input should be a valid number"),
        ("model = 3", [], "model = 3: this is a table of settings; `seqmixer settings` lists them"),
        ("[data]\ntrain = 'train.de'", [],
         """data.train = 'train.de': write a list of names, such as ["train.de", "train.en"]"""),
        ("", ["training.fast=False"], "training.fast = 'False': write true or false"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_config_is_one_clear_line(tmp_path, text, overrides, message):
    with pytest.raises(ConfigError) as error:
        load(tmp_path, text, *overrides)
    assert str(error.value) == f"{tmp_path / 'run.toml'}: {message}"


def test_a_folder_is_not_a_config(tmp_path):
    with pytest.raises(ConfigError) as error:
        Config.load(tmp_path)
    assert (
        str(error.value) == f"{tmp_path}: a folder, not a config; name a TOML file, such as {tmp_path / 'config.toml'}"
    )


def test_a_file_that_is_not_there_or_not_toml(tmp_path):
    with pytest.raises(ConfigError, match=re.escape("no.toml: no such file; configs end in .toml")):
        Config.load(tmp_path / "no.toml")
    with pytest.raises(ConfigError, match=re.escape("run.toml: not TOML: ")):
        load(tmp_path, "a = = 3")
    with pytest.raises(ConfigError, match=re.escape("run.toml: not TOML: Exceeds the limit")):
        load(tmp_path, f"seed = {'9' * 5000}")
    with pytest.raises(ConfigError, match=re.escape("9': Input should be a valid integer")):
        load(tmp_path, "", f"seed={'9' * 5000}")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.hidden", "--set 'model.hidden': write NAME=VALUE, for example model.hidden=512"),
        ("name.x=3", "--set 'name.x=3': 'name' is a setting, not a table of settings"),
    ],
)
def test_an_override_of_the_wrong_form(tmp_path, override, message):
    with pytest.raises(ConfigError) as error:
        load(tmp_path, "name = 'x'", override)
    assert str(error.value) == message


def test_a_config_may_begin_with_a_byte_order_mark(tmp_path):
    (tmp_path / "mine.toml").write_bytes(b"\xef\xbb\xbfname = 'mine'\n")
    assert Config.load(tmp_path / "mine.toml").name == "mine"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"data": {"length": 5}}, "data.length is not for data.task = 'toy-translation', which has words and T of its own"),
        ({"data": {"task": "toy-captioning", "target_min_count": 2}},
         "data.target_min_count is not for data.task = 'toy-captioning', which has words and T of its own"),
        ({"data": {"prefix": "say: "}}, "data.prefix is for model.name = 'huggingface', not 'lstm'"),
        ({"data": {"task": "captions", "source_length": 5}, "model": {"name": "gru"}},
         "data.source_length is for model.name = 'huggingface', not 'gru'"),
        ({"data": {"source_max_size": 9}, "model": {"name": "huggingface", "path": "x"}},
         "data.source_max_size is not for model.name = 'huggingface', whose words are its own"),
        ({"algorithm": {"name": "reinforce", "overlap": True}},
         "algorithm.overlap is read with algorithm.anneal = true alone; remove it, or set that"),
        ({"algorithm": {"name": "reinforce", "anneal": False, "xent_weight": 0.1}},
         "algorithm.xent_weight is read with algorithm.anneal = true alone; remove it, or set that"),
    ],
)  # fmt: skip
def test_settings_that_nothing_would_read_are_refused(values, message):
    with pytest.raises(ConfigError) as error:
        Config.parse(values)
    assert str(error.value) == f"config: {message}"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"algorithm": {"name": "xent", "kl": 0.1}},
         f"algorithm.kl is for algorithm.name = {' or '.join(map(repr, SAMPLED))}, not 'xent'; remove it"),
        ({"algorithm": {"name": "xent", "samples": 4}},
         f"algorithm.samples is for algorithm.name = {' or '.join(map(repr, SAMPLED))}, not 'xent'; remove it"),
        ({"algorithm": {"name": "dad", "k": 4}},
         "algorithm.k is for algorithm.name = 'e2e', not 'dad'; remove it"),
        ({"model": {"heads": 4}}, "model.heads is for model.name = 'transformer', not 'lstm'; remove it"),
        ({"model": {"name": "transformer", "window": 3}},
         "model.window is for model.name = 'lstm' or 'elman' or 'gru', not 'transformer'; remove it"),
        ({"model": {"name": "huggingface", "path": "x", "hidden": 256}},
         "model.hidden is for model.name = 'lstm' or 'elman' or 'gru' or 'transformer', not 'huggingface'; remove it"),
        ({"model": {"name": "huggingface"}},
         "model.path is missing; with model.name = 'huggingface' it names a folder or a model of the hub"),
        ({"algorithm": {"name": "rienforce"}},
         f"unknown algorithm.name 'rienforce'. Did you mean 'reinforce'? Known: {', '.join(sorted(ALGORITHMS))}."),
    ],
)  # fmt: skip
def test_a_setting_of_another_kind_is_refused_even_at_its_default(values, message):
    with pytest.raises(ConfigError) as error:
        Config.parse(values)
    assert str(error.value) == f"config: {message}"


def test_an_override_of_the_kind_drops_what_only_the_kind_in_the_file_reads(tmp_path):
    text = "[algorithm]\nname = 'mixer'\nsamples = 4\ndelta = 3\n[model]\nheads = 2\nname = 'transformer'\nhidden = 8"
    config = load(tmp_path, text, "algorithm.name=xent", "model.name=gru", "algorithm.xent_epochs=2")
    assert (
        config.algorithm.model_dump()
        == Config.parse({"algorithm": {"name": "xent", "delta": 3, "xent_epochs": 2}}).algorithm.model_dump()
    )
    assert (config.model.name, config.model.hidden) == ("gru", 8)
    with pytest.raises(ConfigError, match=r"algorithm\.samples is for"):
        load(tmp_path, text, "algorithm.name=xent", "algorithm.samples=4")
    with pytest.raises(ConfigError, match=r"unknown setting 'model\.hads'"):
        load(tmp_path, text.replace("heads", "hads"), "model.name=gru")


def test_an_override_of_the_kind_drops_what_is_read_with_annealing_alone_unless_it_is_asked_for(tmp_path):
    text = "[algorithm]\nname = 'mixer'\nxent_weight = 0.1\noverlap = true\nsamples = 3"
    plain = load(tmp_path, text, "algorithm.name=reinforce").algorithm
    assert plain.model_dump() == Config.parse({"algorithm": {"name": "reinforce", "samples": 3}}).algorithm.model_dump()
    annealed = load(tmp_path, text, "algorithm.name=reinforce", "algorithm.anneal=true").algorithm
    assert (annealed.xent_weight, annealed.overlap, annealed.samples) == (0.1, True, 3)


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_an_old_name_is_refused_with_the_new_one(old, new):
    table, name = old.split(".")
    with pytest.raises(ConfigError) as error:
        Config.parse({table: {name: 1}})
    assert str(error.value) == f"config: {old} is now called {new}; rename it"
    section, last = new.split(".")
    assert last in type(getattr(Config(), section)).model_fields


def test_a_built_in_task_in_the_words_of_a_pretrained_model_has_a_length():
    model = {"name": "huggingface", "path": "x"}
    assert Config.parse({"data": {"length": 5, "prefix": "say: "}, "model": model}).data.length == 5


@pytest.mark.parametrize("algorithm", [{"name": "mixer"}, {"name": "e2e"}, {"name": "reinforce", "anneal": True}])
def test_a_schedule_without_epochs_is_refused(algorithm):
    nothing = {**algorithm, "xent_epochs": 0, "mixed_epochs": 0}
    with pytest.raises(ConfigError, match=r"algorithm.mixed_epochs are 0: there is nothing to train$"):
        Config.parse({"algorithm": nothing})
    for name in ("xent", "reinforce"):
        assert Config.parse({"algorithm": {"name": name, "xent_epochs": 0, "mixed_epochs": 0}}).algorithm.name == name
