"""A model of your own: six methods, and every algorithm, reward and search works on it."""

import sys

from torch import Tensor, nn

from seqmixer import SequenceModel, Training, Xent, evaluate
from seqmixer.data import toy
from seqmixer.models import step_by_step
from seqmixer.rewards import BLEU


class BagOfWords(SequenceModel):
    """Reads the source as a bag of words, which starts a GRU."""

    def __init__(self, source_vocab: int, target_vocab: int, hidden: int) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(source_vocab, hidden, padding_idx=0)
        self.words = nn.Embedding(target_vocab, hidden)
        self.cell = nn.GRUCell(hidden, hidden)
        self.out = nn.Linear(hidden, target_vocab)

    def encode(self, source: Tensor) -> tuple[Tensor]:
        return (self.bag(source),)

    def start(self, context: tuple[Tensor]) -> tuple[Tensor]:
        return context

    def embed(self, words: Tensor) -> Tensor:
        return self.words(words)

    def step(self, x: Tensor, state: tuple[Tensor], context: tuple[Tensor]) -> tuple[Tensor, tuple[Tensor]]:
        h = self.cell(x, state[0])
        return h, (h,)

    def logits(self, h: Tensor) -> Tensor:
        return self.out(h)

    def unroll(self, words: Tensor, context: tuple[Tensor]) -> Tensor:
        return step_by_step(self, words, context)


task = toy.translation(seed=1)
model = BagOfWords(len(task.source_vocab), len(task.target_vocab), hidden=64)
epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
Training(model, Xent(), task, "runs/own-model", epochs=epochs).run()
print(evaluate(model, task, task.test, BLEU).score)
