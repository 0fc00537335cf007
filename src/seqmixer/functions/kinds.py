"""The kinds of function that can score sentences, told apart by the names of their parameters, and how each is called.

    f(hypothesis, references, ...) -> float            one sentence
    f(hypotheses, references, ...) -> list of floats   a batch: `sources` and further columns are lists
    f(completions, ...) -> list of floats              a batch, as TRL calls it: the sources are `prompts`

Each may be a coroutine function: its sentences are then awaited together. Further parameters are named after columns of
the text: `source`, and any that came with it. One with a default may be missing there; `**columns` takes all there are.
"""

import asyncio
import inspect
import reprlib
import traceback
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

from seqmixer.errors import RewardError

Row = Mapping[str, Any]  # what a function is given of one sentence: column -> value, the hypothesis first

BATCHED = {"hypothesis": "hypotheses", "source": "sources"}  # what a batched function calls the columns
TRL = {"hypothesis": "completions", "source": "prompts"}
LONGEST = 500  # letters of a value or an error in a message
SHORT = reprlib.Repr()
SHORT.maxstring = SHORT.maxother = SHORT.maxlong = LONGEST
TAKES = "(hypothesis, references, ...), (hypotheses, references, ...) for a batch, or (completions, ...) as in TRL"


@dataclass(frozen=True)
class Scorer:
    """A function and how it is to be called."""

    name: str  # what error messages call it
    function: Callable[..., Any]
    batched: bool  # one call for all sentences, everything by name; else one for each, the first two in order
    awaited: bool  # a coroutine function
    names: Mapping[str, str]  # column -> parameter, where they differ
    needs: tuple[str, ...]  # columns without which it cannot be called
    takes: tuple[str, ...]  # columns that it takes where they are there
    takes_all: bool

    def columns(self, there: Collection[str]) -> list[str]:
        """Which columns to give, of those that are there."""
        more = there if self.takes_all else [column for column in self.takes if column in there]
        return list(dict.fromkeys([*self.needs, *more]))

    def blamed(self, rows: Sequence[Row], i: int, first: int) -> str:
        """The call that row i was in, for an error message; the rows are those from sequence `first` on."""
        if self.batched or self.awaited:
            return f"a batch of {len(rows)} sequences, the first {rows[0]['hypothesis']!r}"
        return f"sequence {first + i}, {rows[i]['hypothesis']!r}"


def read(function: Callable[..., Any]) -> Scorer:
    """Read off a function's parameters what kind it is."""
    name = getattr(function, "__name__", type(function).__name__)
    try:
        parameters = inspect.signature(function).parameters
    except ValueError as error:
        raise RewardError(f"reward {name!r} hides its parameters; wrap it in a function that takes {TAKES}") from error
    listed = list(parameters.values())
    names = TRL if "completions" in parameters else BATCHED if "hypotheses" in parameters else {}
    by_order = [] if names else listed[:2]
    by_name = [p for p in listed[len(by_order) :] if p.kind is not p.VAR_KEYWORD]
    can_be_named = all(p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) for p in by_name)
    if not can_be_named or not (names or _two(by_order)):
        got = ", ".join(str(p.replace(annotation=p.empty)) for p in listed if p.default is p.empty)
        raise RewardError(f"reward {name!r} takes ({got}); a function used as a reward takes {TAKES}")
    columns = {parameter: column for column, parameter in names.items()}
    always = ["hypothesis", *(["references"] if by_order else [])]
    return Scorer(
        name=name,
        function=function,
        batched=bool(names),
        awaited=any(map(inspect.iscoroutinefunction, (function, type(function).__call__))),
        names=names,
        needs=(*always, *(columns.get(p.name, p.name) for p in by_name if p.default is p.empty)),
        takes=tuple(columns.get(p.name, p.name) for p in by_name),
        takes_all=any(p.kind is p.VAR_KEYWORD for p in listed),
    )


def _two(parameters: Sequence[inspect.Parameter]) -> bool:
    """Whether these are a hypothesis and its references, whatever they are called; but not a source."""
    in_order = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(in_order) == 2 and all(p.default is p.empty and p.name != "source" for p in in_order)


def scores(scorer: Scorer, rows: Sequence[Row], first: int = 0) -> Iterator[float]:
    """One number for each row, in order, each as soon as it is there. Errors count the rows from `first` on.

    >>> def shared(hypothesis: str, references: list[str]) -> int:
    ...     return len(set(hypothesis.split()) & set(references[0].split()))
    >>> list(scores(read(shared), [{"hypothesis": "a b", "references": ["b c"]}]))
    [1.0]
    """
    if scorer.batched:
        values: Iterable[Any] = _of_batch(scorer, rows)
    elif scorer.awaited:
        values = _of_all_awaited(scorer, rows, first)
    else:
        values = (_of_one(scorer, rows, i, first) for i in range(len(rows)))
    for i, value in enumerate(values):
        try:
            number = float(value)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # of the value's own __float__ too
            what = f"{short(value)} for sequence {first + i}, {rows[i]['hypothesis']!r}"
            raise RewardError(f"reward {scorer.name!r} returned {what}; a reward is one finite number") from error
        yield number


def _of_one(scorer: Scorer, rows: Sequence[Row], i: int, first: int) -> Any:
    with _blaming(scorer, scorer.blamed(rows, i, first)):
        return _called(scorer, rows[i])


def _of_all_awaited(scorer: Scorer, rows: Sequence[Row], first: int) -> list[Any]:
    values = _together([_called(scorer, row) for row in rows])
    for i, value in enumerate(values):
        if isinstance(value, BaseException):
            with _blaming(scorer, f"sequence {first + i}, {rows[i]['hypothesis']!r}"):
                raise value
    return values


def _of_batch(scorer: Scorer, rows: Sequence[Row]) -> list[Any]:
    columns = {scorer.names.get(column, column): [row[column] for row in rows] for column in rows[0]}
    where = scorer.blamed(rows, 0, 0)
    with _blaming(scorer, where):
        values = scorer.function(**columns)
        if scorer.awaited:
            (values,) = _together([values])
            if isinstance(values, BaseException):
                raise values
    one_each = "a batched reward gives one number per sequence"
    try:
        iterator = iter(values)
    except TypeError:
        kind = type(values).__name__
        raise RewardError(f"reward {scorer.name!r} returned a {kind} for {where}; {one_each}") from None
    with _blaming(scorer, where):  # a generator runs now; it may have no end
        found = list(islice(iterator, len(rows) + 1))
    if len(found) != len(rows):
        got = f"more than {len(rows)}" if len(found) > len(rows) else len(found)
        raise RewardError(f"reward {scorer.name!r} returned {got} numbers for {where}; {one_each}")
    return found


def _called(scorer: Scorer, row: Row) -> Any:
    rest = {column: value for column, value in row.items() if column not in ("hypothesis", "references")}
    return scorer.function(row["hypothesis"], row["references"], **rest)


def _together(coroutines: Sequence[Awaitable[Any]]) -> list[Any]:
    """What each gives, or the exception that it raised."""

    async def caught(coroutine: Awaitable[Any]) -> Any:
        try:
            return await coroutine
        except BaseException as error:  # asyncio would let SystemExit end the program
            return error

    async def gathered() -> list[Any]:
        return await asyncio.gather(*map(caught, coroutines))

    with ThreadPoolExecutor(1) as thread:  # in this thread there may be a loop already, as in a notebook
        return thread.submit(asyncio.run, gathered()).result()


@contextmanager
def _blaming(scorer: Scorer, where: str) -> Iterator[None]:
    try:
        yield
    except (KeyboardInterrupt, RewardError):  # most likely the user's; one that is worded already
        raise
    except BaseException as error:
        what = f"{type(error).__name__} for {where}: {short(error)} ({_place(error, scorer.function)})"
        raise RewardError(f"reward {scorer.name!r} raised {what}") from error


def _place(error: BaseException, function: Callable[..., Any]) -> str:
    """The last line of the function's own file that an error went through; without one, where it came from."""
    frames = traceback.extract_tb(error.__traceback__)
    codes = [getattr(each, "__code__", None) for each in (inspect.unwrap(function), type(function).__call__)]
    own = {code.co_filename for code in codes if code}
    frame = next((frame for frame in reversed(frames) if frame.filename in own), frames[-1])
    return f"{frame.filename}:{frame.lineno}"


def short(value: object) -> str:
    """On one line of a bounded length, as error messages are."""
    try:
        return " ".join((str(value)[:LONGEST] if isinstance(value, BaseException) else SHORT.repr(value)).split())
    except Exception:  # of an error's own __str__
        return "what cannot be shown"
