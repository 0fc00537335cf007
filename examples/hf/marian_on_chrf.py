"""Translate with Marian, rewarded by chrF, object by object. Usage: python marian_on_chrf.py [MODEL [EPOCHS]]"""

import sys

from seqmixer import LinearBaseline, Mixer, Search, Training, TrainingConfig, evaluate, forced_words
from seqmixer.data import recoded, tokenizer_vocabs, toy
from seqmixer.models.huggingface import Pretrained, load
from seqmixer.rewards import Merges, as_reward, chrf_metric, detect

path = sys.argv[1] if len(sys.argv) > 1 else "Helsinki-NLP/opus-mt-de-en"
epochs = int(sys.argv[2]) if len(sys.argv) > 2 else 2

vocabs = tokenizer_vocabs(path, encoder=True)
task = recoded(toy.translation(seed=1), vocabs, length=40)  # or text_task(..., vocabs=vocabs) on your own text
pieces = vocabs[1]
chrf = chrf_metric(Merges.of(pieces.words, detect(pieces.words)).characters)
model = load(Pretrained(path, pieces.ids))

forced = forced_words(task.length, delta=20, xent_epochs=epochs, mixed_epochs=1)
algorithm = Mixer(as_reward(chrf), LinearBaseline(model.features), task.length, forced)
settings = TrainingConfig(batch_size=16, lr=2e-5, rl_lr=5e-6, clip=1.0)
Training(model, algorithm, task, "runs/marian-on-chrf", epochs=len(forced), settings=settings, metrics=[chrf]).run()
print(evaluate(model, task, task.test, chrf, search=Search(beam=4)).score)
model.network.save_pretrained("runs/marian-on-chrf/pretrained")
