import pytest
import torch

import tiny
from seqmixer.algorithms import LinearBaseline, Reinforce, Xent
from seqmixer.config import TrainingConfig
from seqmixer.data import recoded, tokenizer_vocabs, toy
from seqmixer.evaluation import evaluate
from seqmixer.models.huggingface import Pretrained, load
from seqmixer.rewards import ROUGE2, Merges, as_reward, detect, metric_on_whole_words
from seqmixer.training import Training


@pytest.mark.slow
def test_a_t5_learns_a_task_by_xent_and_reinforce_raises_its_score_on_held_out_sentences(tmp_path):
    plain = toy.summarization(seed=1, train=1500, valid=60, test=200)
    lines = [str(text) for meta in plain.train.meta for text in (meta["source"], *meta["references"])]
    tokenizer = tiny.sentencepieces(lines, size=700)
    torch.manual_seed(0)
    network = tiny.untrained("t5", len(tokenizer), hidden=64, layers=1, num_heads=4, d_kv=16, dropout_rate=0.0)
    network.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    vocabs = tokenizer_vocabs(str(tmp_path / "model"), encoder=True)
    task = recoded(plain, vocabs, None)
    pieces = vocabs[1]
    metric = metric_on_whole_words(ROUGE2, Merges.of(pieces.words, detect(pieces.words)))
    model = load(Pretrained(str(tmp_path / "model"), pieces.ids))

    def trained(algorithm, epochs, settings):
        Training(
            model, algorithm, task, tmp_path / str(epochs), epochs=epochs, settings=settings, metrics=[metric]
        ).run()
        return evaluate(model, task, task.test, metric).score

    first = trained(Xent(), 5, TrainingConfig(batch_size=32, lr=0.003))
    reinforce = Reinforce(as_reward(metric), LinearBaseline(model.features))
    then = trained(reinforce, 2, TrainingConfig(batch_size=32, lr=0.0006, baseline_lr=0.03))

    assert first > 30
    assert then > first + 8
