"""Every reward and metric that a config can name, from the config to a number."""

import json

import pytest
import torch

from seqmixer.algorithms import ALGORITHMS, Parts
from seqmixer.build import Dimensions, Metrics, build_algorithm, build_model, build_task
from seqmixer.config import Config, RecurrentSettings, RewardConfig, TransformerSettings
from seqmixer.errors import ConfigError
from seqmixer.models import Blueprint, ImageMemory, TextMemory
from seqmixer.rewards import METRICS
from seqmixer.runs import train
from seqmixer.types import EOS, PAD, Rollout

PARTS = Parts(METRICS["bleu"].reward, features=4, length=6, words=9, epochs=3)
NAMES = [*METRICS, "cider", "chrf", "chrf++"]


def config(folder, reward="bleu", metric="bleu", unit="words", targets=("the cat sat", "a dog ran off", "the dog sat")):
    folder.mkdir(exist_ok=True)
    (folder / "a").write_text("\n".join(f"x{i} y" for i in range(len(targets))) + "\n")
    (folder / "b").write_text("\n".join(targets) + "\n")
    files = {split: ["a", "b"] for split in ("train", "valid", "test")}
    return Config.parse(
        {
            "data": {"task": "text", "folder": str(folder), "length": 8, **files},
            "model": {"hidden": 8},
            "algorithm": {"name": "mixer", "xent_epochs": 1, "mixed_epochs": 1, "delta": 8},
            "reward": {"name": reward},
            "training": {"batch_size": 2},
            "evaluation": {"metrics": [metric], "unit": unit},
        }
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_run_is_paid_and_reported_in_any_metric(tmp_path, name):
    run = train(config(tmp_path / "data", reward=name, metric=name), tmp_path)
    events = [json.loads(line) for line in (run.folder / "log.jsonl").read_text().splitlines()]
    assert (len(events), len(events[-1]["valid"])) == (2, 2)
    assert 0 <= events[-1]["train"]["reward"] <= 1  # the score's scale is another
    best = max(event["valid"][name] for event in events)
    assert run.evaluate("valid").score == pytest.approx(best, rel=1e-5)
    assert (run.folder / "cider.safetensors").exists() == (name == "cider")


@pytest.mark.parametrize("name", NAMES)
def test_a_perfect_output_gets_the_highest_reward(tmp_path, name):
    settings = config(tmp_path / "data", reward=name, metric=name, targets=("the cat sat on it", "a dog ran off there"))
    task = build_task(settings.data)
    right = torch.tensor([task.train.references[0][0], task.train.references[1][0]])
    wrong = right.flip(0)
    references = right.unsqueeze(1)
    reward = Metrics(settings, task).reward
    best, worst = (reward(Rollout(words, references)) for words in (right, wrong))
    assert (best > 0.99).all()
    assert (worst < best).all() or name == "length"
    metric = Metrics(settings, task).chosen[0]
    assert metric.corpus(metric.statistics(Rollout(right, references))) == pytest.approx(
        1000 if name == "cider" else 100, rel=1e-4
    )


def test_a_weighted_sum_is_the_sum_of_its_parts(tmp_path):
    settings = config(tmp_path / "data", reward="0.5*bleu + 2*rouge_l - edit")
    task = build_task(settings.data)
    words = torch.tensor([task.train.references[0][0]])
    rollout = Rollout(words, torch.tensor([[[*task.train.references[2][0]]]]))
    parts = [
        Metrics(config(tmp_path / "data", reward=name), task).reward(rollout) for name in ("bleu", "rouge_l", "edit")
    ]
    total = Metrics(settings, task).reward(rollout)
    torch.testing.assert_close(total, 0.5 * parts[0] + 2 * parts[1] - parts[2])


def test_pieces_are_merged_into_words_before_they_are_counted(tmp_path):
    targets = ("un@@ able cats", "una@@ ble cats", "able un@@ able")
    settings = config(tmp_path / "data", reward="exact", metric="exact", targets=targets)
    task = build_task(settings.data)
    words, reference = (torch.tensor([task.train.references[i][0]]) for i in (0, 1))
    rollout = Rollout(words, reference.unsqueeze(1))
    assert Metrics(settings, task).reward(rollout).item() == 1
    assert "pieces:merged" in Metrics(settings, task).chosen[0].signature
    as_they_are = config(tmp_path / "data", reward="exact", unit="pieces", targets=targets)
    assert Metrics(as_they_are, task).reward(rollout).item() == 0


def test_the_end_of_a_sentence_counts_where_it_is_asked_for(tmp_path):
    settings = config(tmp_path / "data", reward="rouge1")
    task = build_task(settings.data)
    (first,) = task.train.references[0]
    rollout = Rollout(torch.tensor([[EOS] + [PAD] * (len(first) - 1)]), torch.tensor([[first]]))
    assert Metrics(settings, task).reward(rollout).item() == 0
    asked = settings.model_copy(update={"reward": RewardConfig(name="rouge1", eos=True)})
    assert Metrics(asked, task).reward(rollout).item() == pytest.approx(1 / len(first))


@pytest.mark.parametrize("name", [*NAMES, "0.5*cider + chrf"])
def test_with_eos_the_end_is_rewarded_as_a_word_of_the_text_would_be(name, tmp_path):
    targets = ("the cat sat on it", "a dog ran off there", "a cat sat there")
    settings = config(tmp_path / "data", reward=name, targets=targets)
    asked = settings.model_copy(update={"reward": RewardConfig(name=name, eos=True)})
    written = config(tmp_path / "written", reward=name, targets=[f"{target} $" for target in targets])
    found = []
    for made, end in ((asked, ""), (written, " $"), (settings, "")):
        task = build_task(made.data)
        sentences = [f"{text}{end}" for text in ("the cat sat on it", "<unk> cat", "a dog ran off")]
        ids = [*map(task.target_vocab.encode, sentences), task.target_vocab.encode("the cat sat on the <unk>")[:-1]]
        words = torch.tensor([row + [PAD] * (7 - len(row)) for row in ids])  # the last is cut at T: no end
        (first,) = task.train.references[0]
        reference = torch.tensor(first + [PAD] * (7 - len(first)))
        found.append(Metrics(made, task).reward(Rollout(words, reference.expand(4, 1, 7))))
    ours, expected, plain = found
    torch.testing.assert_close(ours, expected)
    assert (ours != plain).any() or name == "exact"


@pytest.mark.parametrize("name", ["cider", "chrf++"])
def test_what_counts_words_is_refused_where_they_are_merged(name, tmp_path):
    settings = config(tmp_path / "data", reward=name, targets=("un@@ able cats", "able cats sat"))
    with pytest.raises(ConfigError) as error:
        _ = Metrics(settings, build_task(settings.data)).reward
    assert str(error.value) == (
        f"{name} counts the words of the vocabulary, which are pieces; set evaluation.unit = 'pieces'"
    )


def test_an_unknown_metric_names_the_nearest(tmp_path):
    settings = config(tmp_path / "data", metric="roug_l")
    with pytest.raises(ConfigError) as error:
        Metrics(settings, build_task(settings.data)).chosen[0]
    assert str(error.value) == (
        "unknown evaluation.metrics 'roug_l'. Did you mean 'rouge_l'? Known: bleu, bleu_best, bleu_mean, chrf, chrf++, cider, edit, exact, length, "
        "module:function, rouge1, rouge1_f, rouge2, rouge2_f, rouge_l, sacrebleu, sacrebleu_chrf, sacrebleu_chrf++."
    )


def test_the_settings_of_a_transformer_reach_it():
    settings = {"hidden": 16, "heads": 2, "layers": 3, "dropout": 0.2, "positions": "learned"}
    text = build_model(TransformerSettings(**settings, feedforward=9), Dimensions(5, 7, 9, 6, None))
    assert text.blueprint == Blueprint(hidden=16, heads=2, feedforward=9, layers=3, dropout=0.2, rotary=False)
    assert isinstance(text.memory, TextMemory)
    assert (text.length, text.M_o.out_features, text.memory.words.num_embeddings) == (5, 7, 9)
    assert (text.positions.count, text.memory.positions.count) == (5, 6)
    assert (text.norm.weight == 1).all()

    image = build_model(TransformerSettings(hidden=16), Dimensions(5, 7, None, None, 3))
    assert image.blueprint == Blueprint(hidden=16, heads=4, feedforward=64, layers=1, dropout=0.0, rotary=True)
    assert isinstance(image.memory, ImageMemory)
    assert build_model(TransformerSettings(), Dimensions(5, 7, None, None, None)).memory is None


@pytest.mark.parametrize("name", ["reinforce", "mixer"])
def test_the_weight_of_the_kl_term_reaches_the_algorithm(name):
    settings = ALGORITHMS[name].Settings
    assert build_algorithm(settings(kl=0.2), PARTS).kl == 0.2
    assert build_algorithm(settings(), PARTS).kl == 0


@pytest.mark.parametrize("name", ["elman", "lstm", "gru", "transformer"])
def test_weights_start_as_torch_has_them_unless_it_is_said_how(name):
    dimensions = Dimensions(length=6, target_vocab=50, source_vocab=50, positions=9, features=None)
    torch.manual_seed(1)
    settings = {"hidden": 64} if name == "transformer" else {"name": name, "hidden": 64}
    kind = TransformerSettings if name == "transformer" else RecurrentSettings
    model = build_model(kind(**settings), dimensions)
    said = build_model(kind(**settings, init=0.03), dimensions)
    embeddings, drawn = ({k: w for k, w in each.state_dict().items() if w.shape == (50, 64)} for each in (model, said))
    assert len(embeddings) > 1
    assert max(float(w.std()) for w in embeddings.values()) == pytest.approx(1, abs=0.05)  # torch's of an embedding
    assert [float(w.std()) for w in drawn.values()] == pytest.approx([0.03] * len(drawn), abs=0.002)


OWN = """
from pydantic import Field
from seqmixer.algorithms import Algorithm, AlgorithmSettings, Xent

class Settings(AlgorithmSettings):
    weight: float = Field(gt=0)

class Weighted(Xent):
    Settings = Settings

    @classmethod
    def of(cls, settings, parts):
        made = cls()
        made.weight, made.length = settings.weight, parts.length
        return made

class Bare(Algorithm):
    def stage(self, epoch): ...
    def loss(self, *given): ...

def function(): ...
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_kinds.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    return lambda **table: build_algorithm(Config.parse({"algorithm": table}).algorithm, PARTS)


def test_a_config_names_an_algorithm_of_the_users_own_with_its_settings(own):
    made = own(name="own_kinds:Weighted", weight=2.5)
    assert (type(made).__name__, made.weight, made.length) == ("Weighted", 2.5, 6)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"name": "own_kinds:Weighted"}, "config: algorithm.weight is missing; it has no default"),
        ({"name": "own_kinds:Weighted", "weight": 0.0}, "config: algorithm.weight = 0.0: Input should be greater than 0"),
        ({"name": "own_kinds:Weighted", "wieght": 1.0, "weight": 1.0},
         "config: unknown setting 'algorithm.wieght'. Did you mean 'algorithm.weight'? Known: algorithm.delta, "
         "algorithm.mixed_epochs, algorithm.name, algorithm.to_zero, algorithm.weight, algorithm.xent_epochs."),
        ({"name": "own_kinds:function"},
         "algorithm.name = 'own_kinds:function' is no subclass of seqmixer.algorithms.Algorithm; name one"),
        ({"name": "own_kinds:Bare"},
         "Bare cannot be made from a config; give it a classmethod of(settings, parts)"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_an_own_algorithm_is_one_line(own, table, message):
    with pytest.raises(ConfigError) as error:
        own(**table)
    assert str(error.value) == message
