"""CIDEr-D (Vedantam et al. 2015), as pycocoevalcap's cider_scorer.py has it: the score of captions, and a reward.

An n-gram weighs the more the fewer training examples have it. The reported score is 100 times the mean over sentences,
as captioning papers print it ("CIDEr 105.3"); captions equal to all their references would have 1,000. The reward is a
tenth of a sentence's score, so that it lies in 0..1. The sequence is scored with its forced words.

UNK stands for a different word each time: an n-gram with UNK matches nothing, weighs as one that no document has, and
lengthens the sentence like any other.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from math import log
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from seqmixer.errors import DataError, RewardError
from seqmixer.files import replacing
from seqmixer.rewards import ngrams
from seqmixer.rewards.metric import Metric, counting, uncounted
from seqmixer.rewards.ngrams import ranks, together
from seqmixer.types import BOS, EOS, PAD, UNK

ORDER = 4
SIGMA = 6.0  # words of difference in length that cost a factor of exp(-1/2)
LAST = torch.iinfo(torch.int64).max  # ends every table, so that no search runs over its end
LEAST = 1.0  # of 10: what references must score against themselves for a reward to mean anything
AN_END = BOS  # END in the tables: an id that no sentence has
SAMPLE = 1000  # documents that are scored to see that

Document = Sequence[Sequence[int]]  # the references of one example: word ids, each ending in EOS
Tables = tuple[Tensor, ...]  # one for each order


@dataclass(frozen=True)
class DocumentFrequencies:
    """The idf of every n-gram of the training references, in sorted tables that are looked up on the device.

    The id of an n-gram is its rank in the table of order n, whose key is the id of its first n - 1 words and its last
    word: keys fit 64 bits for any vocabulary, and no two n-grams share one. No n-gram with UNK is in a table.

    >>> frequencies = DocumentFrequencies.build([[[4, 5, 2]], [[4, 6, 2], [6, 6, 2]]])
    >>> frequencies.weights(torch.tensor([[4, 5, 9]]))[0]  # log 2/2, log 2/1, unseen: log 2/1
    tensor([[0.0000, 0.6931, 0.6931]])
    """

    documents: int
    vocab: int  # the words in the tables are below this
    fingerprint: str  # of the references
    keys: Tables  # (G_n + 1,) int64, sorted: id of the first n - 1 words * vocab + last word
    idf: Tables  # (G_n + 1,) log(documents / documents with the n-gram)

    @classmethod
    def build(cls, references: Iterable[Document]) -> "DocumentFrequencies":
        """Count the references of the training examples; a document is all references of one example."""
        documents = list(references)
        words, document = _flat(documents)  # (F,), (F,)
        vocab = 1 + max(UNK, int(words.max()) if len(words) else UNK)
        keys, idf = _tables(words, document, len(documents), vocab)
        frequencies = cls(len(documents), vocab, fingerprint(documents), keys, idf)
        score = _against_themselves(frequencies, documents) if documents else 0.0
        if score < LEAST:
            raise RewardError(
                f"CIDEr-D has document frequencies from {len(documents)} documents, whose references score {score:.2f} "
                "of 10 against themselves, so it would reward nothing: an n-gram that every document has weighs "
                "nothing. Build them from the references of all training examples, one document each."
            )
        return frequencies

    @classmethod
    def cached(cls, path: Path, references: Iterable[Document]) -> "DocumentFrequencies":
        """What `build` gives: read from the file if that was made of the same references, else built and saved."""
        documents = list(references)
        if path.exists():
            stored = cls.load(path)
            if stored.fingerprint == fingerprint(documents):
                return stored
        frequencies = cls.build(documents)
        frequencies.save(path)
        return frequencies

    @classmethod
    def load(cls, path: Path) -> "DocumentFrequencies":
        """Read what `save` wrote."""
        try:
            with safe_open(path, framework="pt") as file:
                about = file.metadata()
                keys, idf = (tuple(file.get_tensor(f"{kind}.{n}") for n in range(ORDER)) for kind in ("keys", "idf"))
            stored = cls(int(about["documents"]), int(about["vocab"]), about["fingerprint"], keys, idf)
            checksum = about["checksum"]
        except FileNotFoundError:
            raise DataError(f"{path}: no such file; `DocumentFrequencies.build(...).save(path)` makes one") from None
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            what = f"not a file of document frequencies ({error})"
            raise DataError(f"{path}: {what}; delete it to have it made anew") from error
        if stored.checksum() != checksum:
            raise DataError(f"{path}: damaged: it is not what was written; delete it to have it made anew")
        return stored

    def save(self, path: Path) -> None:
        """Write a safetensors file, completely or not at all."""
        tensors = {f"keys.{n}": table for n, table in enumerate(self.keys)}
        tensors |= {f"idf.{n}": table for n, table in enumerate(self.idf)}
        about = {"documents": str(self.documents), "vocab": str(self.vocab), "fingerprint": self.fingerprint}
        about["checksum"] = self.checksum()
        with replacing(path) as new:
            save_file(tensors, new, about)

    def checksum(self) -> str:
        """A checksum of all that is saved: a flipped bit would give wrong rewards, unnoticed."""
        digest = hashlib.sha256(f"{self.documents} {self.vocab} {self.fingerprint}".encode())
        for table in (*self.keys, *self.idf):
            digest.update(table.cpu().numpy().tobytes())
        return digest.hexdigest()

    def to(self, device: torch.device) -> "DocumentFrequencies":
        keys, idf = (tuple(table.to(device) for table in tables) for tables in (self.keys, self.idf))
        return DocumentFrequencies(self.documents, self.vocab, self.fingerprint, keys, idf)

    def weights(self, words: Tensor) -> list[Tensor]:
        """log(documents / max(1, df)) of the n-gram from each word on.  (..., P) -> ORDER tensors (..., P - n + 1)

        The caller must mask n-grams that reach over the end of a sentence.
        """
        words = words.masked_fill(words == ngrams.END, AN_END)
        words = torch.where((words >= 0) & (words < self.vocab), words, UNK)  # keys stay apart; UNK is in no table
        rank = torch.zeros_like(words)
        weights = []
        for n, (keys, idf) in enumerate(zip(self.keys, self.idf, strict=True)):
            last = words[..., n:]
            key = rank[..., : last.shape[-1]] * self.vocab + last  # below 0 where the first words are in no table
            place = torch.searchsorted(keys, key)
            found = keys[place] == key
            rank = torch.where(found, place, -1)
            weights.append(torch.where(found, idf[place], log(self.documents)))
        return weights


def statistics(words: Tensor, references: Tensor, frequencies: DocumentFrequencies) -> Tensor:
    """CIDEr-D of each sentence, in 0..10.  (B, T), (B, R, L) -> (B, 1)

    CIDEr-D = 10 mean_r mean_{n=1..4} exp(-(l_h - l_r)^2 / 2 sigma^2) sum_g min(h_g, r_g) r_g / (|h| |r|)

    over the references r that are there. h_g and r_g are how often the n-gram g stands in each, times its idf; l is how
    many words each has. The frequencies must be on the device of the words.
    """
    sentences = together(words, references)  # (B, 1 + R, P)
    length = ngrams.lengths(sentences)  # (B, 1 + R)
    penalty = (-((length[:, :1] - length[:, 1:]) ** 2) / (2 * SIGMA**2)).exp()  # (B, R)
    similarity = torch.stack(_similarities(sentences, frequencies)).mean(0)  # (B, R)
    present = (~ngrams.missing(references)).sum(1).clamp(min=1)  # (B,)
    return 10 * ((penalty * similarity).sum(1) / present).unsqueeze(1)


def corpus(rows: Tensor) -> Tensor:
    """100 times the mean CIDEr-D of the sentences, in 0..1000.  (..., n, 1) -> (...)"""
    return 100 * rows.squeeze(-1).mean(-1)


CIDER = Metric(  # for counts that are there; `cider_metric` counts
    "cider", uncounted, corpus, "cider-d", highest=1000.0, label="CIDEr-D", fitted=True
)


def cider_metric(frequencies: DocumentFrequencies) -> Metric:
    """CIDEr-D. The frequencies are copied once to each device that words come from.

    >>> from seqmixer.types import Rollout
    >>> metric = cider_metric(DocumentFrequencies.build([[[4, 5, 6, 7, 2]], [[4, 8, 9, 2], [8, 9, 7, 2]]]))
    >>> metric.reward(Rollout(torch.tensor([[4, 5, 6, 7, 2], [4, 5, 6, 2, 0]]), torch.tensor([[[4, 5, 6, 7, 2]]] * 2)))
    tensor([1.0000, 0.6222])
    """
    on = cache(frequencies.to)
    counts = counting(lambda words, references: statistics(words, references, on(words.device)))
    counted = f"df:{frequencies.documents}:{frequencies.fingerprint[:8]}"
    signature = f"cider-d|order:{ORDER}|sigma:{SIGMA:g}|{counted}|x100|mean:sentences|unk:never-matches|refs:mean"
    return replace(CIDER, statistics=counts, signature=signature)


def fingerprint(documents: Sequence[Document]) -> str:
    """Equal where the documents are equal and in the same order."""
    words, document = _flat(documents)
    digest = hashlib.sha256(f"{ORDER} {len(documents)}".encode())
    digest.update(words.numpy().tobytes())
    digest.update(document.numpy().tobytes())
    return digest.hexdigest()


def _similarities(sentences: Tensor, frequencies: DocumentFrequencies) -> list[Tensor]:
    """The clipped cosine with each reference, for n = 1..4.  (B, 1 + R, P) -> 4 tensors (B, R)"""
    several, length = sentences.shape[1:]
    size = several * length
    apart = (
        ngrams.END - 1 - torch.arange(size, device=sentences.device).view(several, length)
    )  # each UNK is a word of its own
    word = _ranked(torch.where(sentences == UNK, apart, sentences))  # (B, 1 + R, P) ids within the example
    inside, weights = ngrams.inside(sentences), frequencies.weights(sentences)
    gram = word
    similarities = [_cosine(gram, inside * weights[0] ** 2, size)]
    for n in range(1, ORDER):
        gram = _ranked(gram[..., :-1] * size + word[..., n:])  # (B, 1 + R, P - n)
        similarities.append(_cosine(gram, inside[..., n:] * weights[n] ** 2, size))
    return similarities


def _ranked(keys: Tensor) -> Tensor:
    """Ranks over all the sentences of an example.  (B, 1 + R, G) -> (B, 1 + R, G)"""
    return ranks(keys.flatten(1)).view(keys.shape)


def _cosine(gram: Tensor, weight: Tensor, size: int) -> Tensor:
    """sum_g min(h_g, r_g) r_g / (|h| |r|), and 0 where a norm is.  (B, 1 + R, G), (B, 1 + R, G) -> (B, R)

    Args:
        gram: ids below `size` of the n-grams of the hypothesis, then of each reference.
        weight: their idf squared; 0 where there is no n-gram.
    """
    references = gram.shape[1] - 1
    counts = weight.new_zeros(*gram.shape[:2], size).scatter_add(-1, gram, (weight > 0).to(weight))
    own = counts.gather(-1, gram)  # (B, 1 + R, G) how often the n-gram stands in its own sentence
    norm = (own * weight).sum(-1).sqrt()  # (B, 1 + R) each of c occurrences adds c, which makes c^2
    h, r = own[:, :1], counts[:, 1:].gather(-1, gram[:, :1].expand(-1, references, -1))  # (B, 1, G), (B, R, G)
    clipped = (weight[:, :1] * torch.minimum(h, r) * r / h.clamp(min=1)).sum(-1)  # (B, R) each occurrence a share
    norms = norm[:, :1] * norm[:, 1:]  # (B, R)
    return torch.where(norms > 0, clipped / norms, 0)


def _flat(documents: Sequence[Document]) -> tuple[Tensor, Tensor]:
    """All references one after the other, each with one more EOS, and the document of each word.  -> (F,), (F,)"""
    words = [*chain.from_iterable((*words, EOS) for several in documents for words in several)]
    sizes = [sum(len(words) + 1 for words in several) for several in documents]
    counted = torch.tensor(sizes, dtype=torch.int64)
    return torch.tensor(words, dtype=torch.int64), torch.arange(len(documents)).repeat_interleave(counted)


def _tables(words: Tensor, document: Tensor, documents: int, vocab: int) -> tuple[Tables, Tables]:
    """(F,), (F,) -> keys and idf for each order"""
    between = torch.isin(words, torch.tensor([PAD, EOS, UNK]))  # no n-gram runs over these
    words = torch.cat([words.masked_fill(between, -1), words.new_full((ORDER,), -1)])  # (F + ORDER,)
    start = torch.arange(len(document))  # where the n-grams begin that are left
    rank = torch.zeros_like(start)
    keys, idf = [], []
    for n in range(ORDER):
        goes_on = words[start + n] >= 0
        start = start[goes_on]
        table, rank = (rank[goes_on] * vocab + words[start + n]).unique(return_inverse=True)
        once = (rank * documents + document[start]).unique()  # n-gram and document, once for each pair
        frequency = (once // max(documents, 1)).bincount(minlength=len(table))
        keys.append(torch.cat([table, table.new_tensor([LAST])]))
        idf.append(torch.cat([(documents / frequency.double()).log().float(), torch.zeros(1)]))
    return tuple(keys), tuple(idf)


def _against_themselves(frequencies: DocumentFrequencies, documents: Sequence[Document]) -> float:
    """The mean CIDEr-D of references that are taken for their own hypotheses."""
    step = -(-len(documents) // SAMPLE)
    sample = [words for several in documents[::step] for words in several[:1]]
    length = max(map(len, sample), default=0)
    rows = torch.tensor([[*words, *[PAD] * (length - len(words))] for words in sample]).view(len(sample), length).long()
    return statistics(rows, rows.unsqueeze(1), frequencies).sum().item() / max(len(sample), 1)
