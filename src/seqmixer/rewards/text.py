"""Rewards made of a user's own Python function, on strings or on word ids, and the checks that such a function needs.

These leave the device and look at each sentence; the built-in rewards do neither.
"""

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from seqmixer.errors import ConfigError, RewardError, SeqmixerError
from seqmixer.rewards import ngrams
from seqmixer.types import Reward, Rollout

Decode = Callable[[Sequence[int]], str]  # words before EOS -> text


def on_text(function: Callable[..., float], decode: Decode) -> Reward:
    """A reward of a function of strings: f(hypothesis, references) or f(hypothesis, references, source).

    The hypothesis is decoded; references and source are the text as it was before it became ids, from `rollout.meta`.
    Parameters of the function that have a default keep it. The whole sequence is scored, its given words included.

    >>> def share(hypothesis: str, references: list[str]) -> float:
    ...     return len(set(hypothesis.split()) & set(references[0].split())) / len(references[0].split())
    >>> reward = on_text(share, decode=lambda ids: " ".join("_ _ _ ? the cat sat".split()[i] for i in ids))
    >>> words = torch.tensor([[4, 5, 2]])
    >>> reward(Rollout(words, words.unsqueeze(1), meta=[{"references": ["the cat sat down"]}]))
    tensor([0.5000])
    """
    name = _name(function)
    needs_source = _parameters(function, {2: "(hypothesis, references)", 3: "(hypothesis, references, source)"}) == 3

    def reward(rollout: Rollout) -> Tensor:
        hypotheses = [decode(words) for words in _sentences(rollout.words)]
        columns: list[list[Any]] = [hypotheses, [list(texts) for texts in _column(rollout, "references", name)]]
        if needs_source:
            columns.append(_column(rollout, "source", name))
        return _one_by_one(function, name, columns).to(rollout.words.device)

    return reward


def on_words(function: Callable[[list[int], list[list[int]]], float]) -> Reward:
    """A reward of a function of word ids, without EOS: f(hypothesis, references).

    The whole sequence is scored, its given words included. Missing references are left out.

    >>> reward = on_words(lambda hypothesis, references: float(hypothesis in references))
    >>> reward(Rollout(torch.tensor([[4, 5, 2], [4, 2, 0]]), torch.tensor([[[4, 5, 2]], [[4, 5, 2]]])))
    tensor([1., 0.])
    """
    name = _name(function)
    _parameters(function, {2: "(hypothesis, references)"})

    def reward(rollout: Rollout) -> Tensor:
        present = (~ngrams.missing(rollout.references)).tolist()  # B lists of R
        references = [
            [words for words, there in zip(_sentences(several), flags, strict=True) if there]
            for several, flags in zip(rollout.references, present, strict=True)
        ]
        return _one_by_one(function, name, [_sentences(rollout.words), references]).to(rollout.words.device)

    return reward


def checked(reward: Reward, name: str, decode: Decode | None = None) -> Reward:
    """The same reward, made to give one finite number per sequence. Waits for the device: for users' rewards only.

    Args:
        reward: any function of a rollout.
        name: what error messages call it.
        decode: shows the sequence to blame as text rather than as ids.
    """

    def run(rollout: Rollout) -> Tensor:
        try:
            r = reward(rollout)
        except SeqmixerError:  # says what is wrong already
            raise
        except Exception as error:
            raise RewardError(f"reward {name!r} raised {type(error).__name__}: {error}") from error
        allowed = f"a reward gives one number per sequence, ({len(rollout.words)},)"
        if not isinstance(r, Tensor):
            raise RewardError(f"reward {name!r} returned a {type(r).__name__}, not a tensor; {allowed}")
        if r.shape != rollout.words.shape[:1]:
            raise RewardError(f"reward {name!r} returned shape {tuple(r.shape)}; {allowed}")
        return _finite(r.float(), name, lambda i: shown(rollout.words[i : i + 1]))

    def shown(words: Tensor) -> object:
        (sentence,) = _sentences(words)
        return decode(sentence) if decode else sentence

    return run


def from_path(path: str) -> Callable[..., Any]:
    """The function at `package.module:function` or `package.module.function`; the current folder is searched first.

    >>> from_path("math:sqrt")(9)
    3.0
    """
    module_name, _, name = path.rpartition(":" if ":" in path else ".")
    if not module_name or not name:
        raise ConfigError(f"reward {path!r} is not the path of a function; write 'module:function'.")
    module = _import(module_name, path)
    try:
        function: object = getattr(module, name)
    except AttributeError:
        near = get_close_matches(name, dir(module), n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"reward {path!r}: module {module_name!r} has no {name!r}.{hint}") from None
    if not callable(function):
        kind = type(function).__name__
        raise ConfigError(f"reward {path!r} is not a function but of type {kind}; name a function.")
    return function


def _import(name: str, path: str) -> ModuleType:
    """Import as `python -m` would: the current folder first."""
    folder = os.getcwd()
    sys.path.insert(0, folder)
    importlib.invalidate_caches()  # the user may have written the file a moment ago
    try:
        return importlib.import_module(name)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
            where = f"neither in {folder} nor among the installed packages"
            raise ConfigError(f"reward {path!r}: there is no module {name!r}, {where}.") from None
        raise ConfigError(f"reward {path!r}: importing {name!r} raised {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(folder)


def _one_by_one(function: Callable[..., float], name: str, columns: Sequence[Sequence[Any]]) -> Tensor:
    """Call the function with one row of the columns after the other; the first column is what errors show.  -> (B,)"""
    values = []
    for i, row in enumerate(zip(*columns, strict=True)):
        try:
            value = function(*row)
        except Exception as error:
            what = f"{type(error).__name__} for sequence {i}, {row[0]!r}: {error}"
            raise RewardError(f"reward {name!r} raised {what}") from error
        try:
            values.append(float(value))
        except (TypeError, ValueError) as error:
            what = f"{value!r} for sequence {i}, {row[0]!r}"
            raise RewardError(f"reward {name!r} returned {what}; a reward is one finite number") from error
    return _finite(torch.tensor(values, dtype=torch.float32), name, lambda i: columns[0][i])


def _finite(r: Tensor, name: str, hypothesis: Callable[[int], object]) -> Tensor:
    bad = (~r.isfinite()).nonzero()  # (number of them, 1)
    if len(bad):
        i = int(bad[0])
        what = f"{r[i].item()} for sequence {i}, {hypothesis(i)!r}"
        raise RewardError(f"reward {name!r} returned {what}; a reward is one finite number")
    return r


def _sentences(words: Tensor) -> list[list[int]]:
    """The words of each row before EOS or PAD.  (B, T) -> B lists"""
    return [row[:n] for row, n in zip(words.tolist(), ngrams.lengths(words).tolist(), strict=True)]


def _column(rollout: Rollout, column: str, name: str) -> list[Any]:
    """One column of the text that came with the sentences."""
    if len(rollout.meta) != len(rollout.words):
        got = f"{len(rollout.words)} sequences came with the text of {len(rollout.meta)}"
        raise RewardError(f"reward {name!r} reads text, but {got}; give `meta` to the rollout, one row per sequence")
    for i, meta in enumerate(rollout.meta):
        if column not in meta:
            there = ", ".join(sorted(meta)) or "none"
            raise RewardError(f"reward {name!r} reads the column {column!r}, missing for sequence {i}; it has: {there}")
    return [meta[column] for meta in rollout.meta]


def _parameters(function: Callable[..., float], allowed: dict[int, str]) -> int:
    """How many arguments the function must be given, which is one of `allowed`."""
    name, takes = _name(function), " or ".join(allowed.values())
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError as error:
        raise RewardError(f"reward {name!r} hides its parameters; wrap it in a function that takes {takes}") from error
    needed = [p for p in parameters if p.default is p.empty]
    positional = [p for p in needed if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if positional != needed or len(needed) not in allowed:
        got = ", ".join(str(p.replace(annotation=p.empty)) for p in needed)
        raise RewardError(f"reward {name!r} takes ({got}); a function used as a reward takes {takes}")
    return len(needed)


def _name(function: Callable[..., Any]) -> str:
    return function.__name__ if inspect.isroutine(function) else type(function).__name__
