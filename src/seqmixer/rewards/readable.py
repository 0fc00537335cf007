"""sacreBLEU's scores, of the text that people read: what the vocabulary decodes, against the references as they were.

The counts are ours, of sacreBLEU's words (13a) or characters. They are made on the CPU, from strings.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from torch import Tensor

from seqmixer.rewards import bleu
from seqmixer.rewards.characters import CharacterTable
from seqmixer.rewards.chrf import CHRF, chrf_metric
from seqmixer.rewards.metric import BLEU, Metric, uncounted
from seqmixer.rewards.text import require_text, sentences
from seqmixer.types import Rollout

SACREBLEU = Metric(
    "sacrebleu",
    uncounted,
    partial(bleu.corpus, smoothing=bleu.halving),
    "sacrebleu|bleu|tok:13a|smooth:exp|case:mixed|eff:no|references:whole-text",
    size=BLEU.size,
    alone=bleu.of_sentences,
    label="BLEU of text",
)
CHRFS = {  # by the name of the metric that counts the same of words
    name: replace(
        metric,
        name=f"sacrebleu_{name}",
        signature=f"sacrebleu|{metric.signature.removesuffix('|unk:never-matches|refs:best')}|references:whole-text",
        label=f"{metric.label} of text",
    )
    for name, metric in CHRF.items()
}
READABLE = {metric.name: metric for metric in (SACREBLEU, *CHRFS.values())}  # `readable_metric` counts


def readable_metric(name: str, decode: Callable[[Sequence[int]], str]) -> Metric:
    """One of sacreBLEU's metrics. As a reward, each sentence has the score of `Metric.of_each`, in 0..1.

    >>> import torch
    >>> metric = readable_metric("sacrebleu", lambda ids: " ".join("_ _ _ ? A cat sat. down".split()[i] for i in ids))
    >>> words = torch.tensor([[4, 5, 6, 2]])
    >>> metric.reward(Rollout(words, words.unsqueeze(1), meta=[{"references": ["A cat sat ."]}]))
    tensor([1.])
    """
    metric = READABLE[name]

    def statistics(rollout: Rollout) -> Tensor:
        from seqmixer.rewards.strings import TOKENIZE, as_rollout, word_ids

        require_text(rollout, name)
        split = TOKENIZE["13a" if metric is SACREBLEU else "none"]
        written = [split(decode(words)).split() for words in sentences(rollout.words)]
        wanted = [[split(text).split() for text in meta["references"]] for meta in rollout.meta]
        ids = word_ids()
        text = as_rollout(written, wanted, ids)
        return counter(metric, list(ids))(text).to(rollout.words.device)  # (B, S)

    def reward(rollout: Rollout) -> Tensor:
        return metric.of_each(statistics(rollout)) / metric.highest  # (B,)

    return replace(metric, statistics=statistics, sentence=reward)


def counter(metric: Metric, words: Sequence[str]) -> Callable[[Rollout], Tensor]:
    """What counts the words that have these names, from the first id that is no special one."""
    if metric is SACREBLEU:
        return BLEU.statistics
    of_words = next(name for name, readable in CHRFS.items() if readable is metric)
    return chrf_metric(CharacterTable.build(["<pad>", "<s>", "</s>", "<unk>", *words]), of_words).statistics
