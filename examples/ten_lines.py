"""All of it from Python: a task, a model, a reward, MIXER, and a score."""

import sys

from seqmixer import LinearBaseline, Mixer, Search, Training, TrainingConfig, evaluate, forced_words
from seqmixer.data import toy
from seqmixer.models import AttentiveEncoder, LSTMCell, Recurrent
from seqmixer.rewards import BLEU, sentence_bleu

xent_epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 8

task = toy.translation(seed=1)
encoder = AttentiveEncoder(len(task.source_vocab), hidden=64, positions=20)
model = Recurrent(LSTMCell, encoder, len(task.target_vocab), hidden=64)  # or any SequenceModel
forced = forced_words(task.length, delta=5, xent_epochs=xent_epochs, mixed_epochs=1, to_zero=True)
algorithm = Mixer(sentence_bleu, LinearBaseline(model.features), task.length, forced)  # or any reward
settings = TrainingConfig(batch_size=64, lr=4e-3, rl_lr=1e-3)

Training(model, algorithm, task, "runs/ten-lines", epochs=len(forced), settings=settings).run()
print(evaluate(model, task, task.test, BLEU, search=Search(beam=5)).score)
