"""Scores to report, of text, in two protocols that are never mixed: each score says in its signature which it is.

`standard`: all sentences, uncropped; BLEU, chrF and TER by sacreBLEU, ROUGE and CIDEr-D by our own counts.
`paper`: what the released evaluator computes: only some of the sentences, cut at T words (see `kept`).
"""

import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from sacrebleu.metrics.bleu import BLEU as SacreBLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from seqmixer import __version__
from seqmixer.data import read_lines
from seqmixer.errors import ConfigError, DataError, unknown
from seqmixer.functions import from_path, is_path
from seqmixer.rewards import (
    BLEU,
    ROUGE1,
    ROUGE1_F,
    ROUGE2,
    ROUGE2_F,
    ROUGE_L,
    DocumentFrequencies,
    Metric,
    cider_metric,
    parse,
    sum_signature,
    unk_as_word,
    values_of,
)
from seqmixer.rewards.strings import TOKENIZE, Ids, as_rollout, encoded, word_ids
from seqmixer.types import UNK

Texts = Sequence[str]
References = Sequence[Sequence[str]]  # all references of each sentence, as many of each

ROUGES = {metric.name: metric for metric in (ROUGE1, ROUGE1_F, ROUGE2, ROUGE2_F, ROUGE_L)}
PAPER = {metric.name: metric for metric in (BLEU, ROUGE2)}
METRICS = {"standard": ("bleu", "chrf", "chrf++", "ter", "cider", *ROUGES), "paper": tuple(PAPER)}

LENGTH = 25  # T of the paper's translation; 15 in its other tasks
LEAST = 800  # target words in a bin that the released loader keeps
ROWS = 64  # sentences compared at a time: a batch holds the square of the longest


@dataclass(frozen=True)
class Score:
    metric: str
    value: float  # in 0..highest; of ter, lower is better, and there is no 100 to its end
    signature: str
    highest: float = 100.0  # cider's is 1000; 1: functions and sums, which are in their own units


def standard(
    hypotheses: Texts,
    references: References,
    metrics: Sequence[str] = ("bleu", "chrf"),
    tokenize: str = "none",
    sources: Texts | None = None,
) -> list[Score]:
    """Score uncropped sentences, by built-in metrics, Python functions "module:function", and weighted sums.

    `tokenize` does not matter to chrF and TER, which have rules of their own, and to functions, which get the text;
    `sources` are for functions.

    >>> [(score.metric, score.value) for score in standard(["the cat sat"], [["the cat sat"]], ["chrf", "rouge2"])]
    [('chrf', 100.0), ('rouge2', 100.0)]
    """
    _require("standard", metrics)
    if tokenize not in TOKENIZE:
        raise unknown("tokenize", tokenize, TOKENIZE)

    def part(name: str) -> Score:
        if is_path(name):
            return _of_function(name, hypotheses, references, sources)
        made = _of_words if name == "cider" or name in ROUGES else _of_text
        return made(name, hypotheses, references, tokenize)

    return [_sum(text, [(weight, part(name)) for weight, name in parse(text)]) for text in metrics]


def paper(
    hypotheses: Texts,
    references: References,
    sources: Texts,
    metrics: Sequence[str] = ("bleu",),
    length: int = LENGTH,
    least: int = LEAST,
) -> list[Score]:
    """Score the `kept` sentences, hypothesis and references cut at `length` words. The word <unk> never matches."""
    _require("paper", metrics)
    chosen = kept(sources, references, least)
    if not chosen:
        raise DataError(
            f"the paper protocol scores no sentence here: no length of source has {least} target words or more; "
            "use the standard protocol"
        )
    cut = [hypotheses[i].split()[:length] for i in chosen]
    wanted = [[text.split()[:length] for text in references[i]] for i in chosen]
    return [
        Score(
            name,
            _counted(PAPER[name], cut, wanted, word_ids({"<unk>": UNK})),
            paper_signature(PAPER[name], references, chosen, length, vocab="open", least=least),
        )
        for name in metrics
    ]


def paper_signature(
    metric: Metric, references: References, chosen: Sequence[int], length: int, vocab: str, least: int = LEAST
) -> str:
    """How a score of the `chosen` sentences was made. `vocab`: which words of the references are known, or "open"."""
    words = sum(len(references[i][0].split()[:length]) for i in chosen)
    how = f"cut:{length}|bins:{least}|n:{len(chosen)}/{len(references)}|words:{words}|vocab:{vocab}"
    return f"paper|{metric.signature}|{how}|seqmixer:{__version__}"


def kept(sources: Texts, references: References, least: int = LEAST) -> list[int]:
    """Which sentences the released evaluator scores: its loader drops small bins, also of valid and test.

    A bin holds the sentences with one number of source words (the </s> that ends every source is in all of them alike).
    It is kept if its references, uncut and with one </s> each, have `least` words or more; of several references the
    first one counts. On IWSLT14 that keeps 6,380 of 6,750 test sentences with 105,584 words after the cut at 25, and
    6,778 of 6,969 with 112,423 of valid.

    >>> kept(["ein hund", "eine katze", "ja"], [["a dog"], ["a cat"], ["yes"]], least=6)
    [0, 1]
    """
    lengths = [len(source.split()) for source in sources]
    words: dict[int, int] = defaultdict(int)
    for n, several in zip(lengths, references, strict=True):
        words[n] += len(several[0].split()) + 1
    return [i for i, n in enumerate(lengths) if words[n] >= least]


def score_files(
    hypotheses: Path,
    references: Sequence[Path],
    *,
    protocol: str = "standard",
    metrics: Sequence[str] | None = None,
    tokenize: str = "none",
    source: Path | None = None,
    length: int | None = None,
) -> list[Score]:
    """Score lines of text, plain or .gz, with one or more files of references. Metrics None: those the protocol has."""
    if protocol not in METRICS:
        raise unknown("protocol", protocol, METRICS)
    _require(protocol, metrics or ())  # before long files are read
    if protocol == "standard":
        functions = any(is_path(name) for text in metrics or () for _, name in parse(text))
        for option, value in (("--source", None if functions else source), ("--length", length)):
            if value is not None:
                raise ConfigError(
                    f"{option} {value} needs --protocol paper; the standard protocol scores uncropped sentences"
                )
        written, *wanted = _aligned([hypotheses, *references, *([source] if source else [])])
        sources = wanted.pop() if source else None
        return standard(written, list(zip(*wanted, strict=True)), metrics or ("bleu", "chrf"), tokenize, sources)
    if source is None:
        raise ConfigError("the paper protocol needs the source (--source FILE): it drops sentences by its length")
    if tokenize != "none":
        raise ConfigError(f"the paper protocol takes words as they are; remove --tokenize {tokenize}")
    given, written, *wanted = _aligned([source, hypotheses, *references])
    return paper(written, list(zip(*wanted, strict=True)), given, metrics or ("bleu",), length or LENGTH)


def _aligned(paths: Sequence[Path]) -> list[list[str]]:
    columns = [read_lines(path, max_words=sys.maxsize, allow_empty=True) for path in paths]
    for path, column in zip(paths, columns, strict=True):
        if len(column) != len(columns[0]):
            counts = f"{paths[0]} has {len(columns[0])} lines but {path} has {len(column)}"
            raise DataError(f"{counts}; files are compared line by line")
    return columns


def _require(protocol: str, metrics: Sequence[str]) -> None:
    standard = protocol == "standard"
    for text in metrics:
        for name in [name for _, name in parse(text)] if standard else [text]:
            if name not in METRICS[protocol] and not (standard and is_path(name)):
                raise unknown(f"metric of the {protocol} protocol", name, METRICS[protocol])


def _of_function(path: str, hypotheses: Texts, references: References, sources: Texts | None) -> Score:
    """The mean of a user's function."""
    rows: list[dict[str, Any]] = [
        {"hypothesis": text, "references": list(several)} for text, several in zip(hypotheses, references, strict=True)
    ]
    if sources is not None:
        rows = [row | {"source": source} for row, source in zip(rows, sources, strict=True)]
    value = float(values_of(from_path(path), rows).mean())
    signature = f"standard|{path}|mean:sentences|n:{len(hypotheses)}|seqmixer:{__version__}"
    return Score(path, value, signature, highest=1.0)


def _sum(text: str, terms: Sequence[tuple[float, Score]]) -> Score:
    """The weighted sum of scores, each as a share of its highest: in units of the reward."""
    if len(terms) == 1 and terms[0][0] == 1:
        return terms[0][1]
    value = sum(weight * score.value / score.highest for weight, score in terms)
    return Score(text, value, sum_signature([(weight, score.signature) for weight, score in terms]), highest=1.0)


def _of_text(name: str, hypotheses: Texts, references: References, tokenize: str) -> Score:
    """By sacreBLEU, and with its signature."""
    metric = _sacrebleu(name, tokenize, tuple(zip_longest(*references)))  # None: fewer references than others have
    result = metric.corpus_score(hypotheses, None)
    return Score(name, result.score, f"standard|{name}|n:{len(hypotheses)}|{metric.get_signature()}")


@lru_cache(maxsize=4)  # of one test set: many systems, or widths of a beam, are scored against the same references
def _sacrebleu(name: str, tokenize: str, streams: Any) -> SacreBLEU | CHRF | TER:
    """With the n-grams of the references counted, which takes longer than to score."""
    match name:
        case "bleu":
            return SacreBLEU(tokenize=tokenize, force=tokenize == "none", references=streams)  # force: no advice
        case "chrf" | "chrf++":
            return CHRF(word_order=2 if name == "chrf++" else 0, references=streams)
        case _:
            return TER(references=streams)


def _of_words(name: str, hypotheses: Texts, references: References, tokenize: str) -> Score:
    """By our own counts, with ids made of the words that are there, so that none is UNK."""
    split = TOKENIZE[tokenize]
    written = [split(text).split() for text in hypotheses]
    wanted = [[split(text).split() for text in several] for several in references]
    ids = word_ids()
    if name == "cider":  # with the document frequencies of these references, as pycocoevalcap has it
        documents = [[encoded(words, ids) for words in several] for several in wanted]
        metric = cider_metric(DocumentFrequencies.build(documents))
    else:
        metric = ROUGES[name]
    counts = {len(several) for several in references}
    several = str(counts.pop()) if len(counts) == 1 else "var"  # as sacreBLEU has it
    how = f"nrefs:{several}|tok:{tokenize}|n:{len(hypotheses)}|seqmixer:{__version__}"
    signature = f"standard|{unk_as_word(metric).signature}|{how}"
    return Score(name, _counted(metric, written, wanted, ids), signature, metric.highest)


def _counted(metric: Metric, hypotheses: list[list[str]], references: list[list[list[str]]], ids: Ids) -> float:
    """Score words by our own counts."""
    rows = []
    for i in range(0, len(hypotheses), ROWS):
        rows.append(metric.statistics(as_rollout(hypotheses[i : i + ROWS], references[i : i + ROWS], ids)))
    return float(metric.corpus(torch.cat(rows)))
