"""That learning happens: a wrong sign, a wrong mask or a reward that pays for the wrong thing shows here first."""

import random

import pytest

from seqmixer.algorithms import E2E, Dad, LinearBaseline, Mixer, Reinforce, Xent
from seqmixer.config import TrainingConfig
from seqmixer.data import text_task, toy
from seqmixer.evaluation import evaluate
from seqmixer.models import AttentiveEncoder, ElmanCell, LSTMCell, Recurrent, initialise
from seqmixer.rewards import BLEU, ROUGE2, on_text, rouge2_recall
from seqmixer.storage import checkpoint
from seqmixer.training import Training, epochs, read_log

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["xent", "dad", "e2e"])
def test_every_word_level_algorithm_learns_to_copy(name, tmp_path):
    rng = random.Random(0)
    sources = sorted({" ".join(rng.choices("abcdef", k=rng.randint(3, 5))) for _ in range(800)})
    pairs = sources, [[source] for source in sources]
    task = text_task("copy", pairs, pairs, pairs, length=6)
    model = Recurrent(LSTMCell, AttentiveEncoder(len(task.source_vocab), 32, 8, window=1), len(task.target_vocab), 32)
    initialise(model, 0.2)
    algorithm = {"xent": Xent(), "dad": Dad([1.0] * 10 + [0.7] * 4), "e2e": E2E([6] * 10 + [2] * 4, k=3)}[name]
    settings = TrainingConfig(batch_size=16, lr=0.01)
    Training(model, algorithm, task, tmp_path, epochs=14, settings=settings).run()
    last, _ = checkpoint.load(tmp_path / "last")  # not the best, which may be of an epoch of pure XENT
    model.load_state_dict(checkpoint.under("model", last))
    assert evaluate(model, task, task.test, BLEU).score > 60


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """An XENT model of headlines."""
    task = toy.summarization(seed=1, train=6000, valid=100, test=200)
    out = tmp_path_factory.mktemp("xent")
    settings = TrainingConfig(batch_size=64, lr=0.006)
    model = headline_model(task)
    Training(model, Xent(), task, out, epochs=8, settings=settings, metrics=[ROUGE2]).run()
    return (
        task,
        {name: weight.clone() for name, weight in model.state_dict().items()},
        evaluate(model, task, task.test, ROUGE2).score,
    )


def headline_model(task):
    model = Recurrent(ElmanCell, AttentiveEncoder(len(task.source_vocab), 64, 30), len(task.target_vocab), 64)
    initialise(model, 0.2)
    return model


def gain(trained, algorithm_for, out):
    """How much the test score rises in three epochs of sequence-level training."""
    task, weights, before = trained
    model = headline_model(task)
    model.load_state_dict(weights)
    settings = TrainingConfig(batch_size=64, lr=0.001, baseline_lr=0.01)
    algorithm = algorithm_for(LinearBaseline(model.features))
    Training(model, algorithm, task, out, epochs=3, settings=settings, metrics=[ROUGE2]).run()
    return evaluate(model, task, task.test, ROUGE2).score - before


def test_reinforce_and_mixer_raise_the_metric_they_are_paid_in_and_a_constant_reward_does_not(trained, tmp_path):
    """The constant reward is the control: what is gained must come from the metric, not from more training."""
    decode = trained[0].target_vocab.decode
    constant = on_text(lambda hypothesis, references: 0.5, decode)
    reinforce = gain(trained, lambda baseline: Reinforce(rouge2_recall, baseline), tmp_path / "reinforce")
    mixer = gain(trained, lambda baseline: Mixer(rouge2_recall, baseline, 12, [4, 0, 0]), tmp_path / "mixer")
    control = gain(trained, lambda baseline: Reinforce(constant, baseline), tmp_path / "control")
    assert min(reinforce, mixer) > 8
    assert control < min(reinforce, mixer) / 2
    assert epochs(read_log(tmp_path / "control"))[-1]["train"]["reward_spread"] == 0
