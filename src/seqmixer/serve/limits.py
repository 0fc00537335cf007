"""What may be asked of a server: the form of a question with its limits, and how often it may be asked."""

import time
from collections.abc import Callable
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from seqmixer.errors import SeqmixerError
from seqmixer.runs.explain import Searches

SOURCES = 64  # of a question
CHARACTERS, WORDS = 10_000, 1_000  # of a source
BEAM, SAMPLES = 20, 20
WAITING = 1_024  # sources in the queue
ROOM = 100_000  # words of the sources of a batch, counted once for each of their sentences
BODY = 2**22  # bytes of a request
ADDRESSES = 10_000  # whose rate is remembered

Feature = Annotated[float, Field(ge=-1e4, le=1e4)]


class Busy(SeqmixerError):
    """More is asked than can be answered now."""


class Question(BaseModel):
    """What `POST /generate` takes: sources as text or as image features, and what is wanted of each."""

    model_config = ConfigDict(extra="forbid", strict=True)

    sources: list[str] = Field([], max_length=SOURCES)
    features: list[list[Feature]] = Field([], max_length=SOURCES)
    references: list[str | None] | None = None
    run: str | None = None
    beam: int = Field(1, ge=1, le=BEAM)
    length_penalty: float = Field(0.0, ge=-5, le=5)
    samples: int = Field(0, ge=0, le=SAMPLES)
    temperature: float = Field(1.0, ge=0.01, le=10)
    attention: bool = False

    @property
    def searches(self) -> Searches:
        return Searches(self.beam, self.length_penalty, self.samples, self.temperature, self.attention)


class Rate:
    """How often each address may ask: so many times a minute, at once or spread. None: as often as it likes."""

    def __init__(self, a_minute: int | None, now: Callable[[], float] = time.monotonic) -> None:
        self.a_minute, self.now = a_minute, now
        self.left = dict[str, tuple[float, float]]()  # by address: how many at once, and when it asked last

    def take(self, address: str) -> None:
        """Raise `Busy` where the address has none left."""
        if self.a_minute is None:
            return
        now = self.now()
        left, then = self.left.pop(address, (float(self.a_minute), now))
        left = min(float(self.a_minute), left + (now - then) * self.a_minute / 60)
        self.left[address] = (left - 1 if left >= 1 else left, now)  # at the end: the first is the one to forget
        if len(self.left) > ADDRESSES:
            del self.left[next(iter(self.left))]
        if left < 1:
            raise Busy(f"more than {self.a_minute} requests a minute; try again in a few seconds")
