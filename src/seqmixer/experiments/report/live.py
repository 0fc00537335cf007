"""`seqmixer watch`: the curves of a run in the browser while it trains, served to this machine alone."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import parse_qs, urlsplit

from seqmixer.build import run_length
from seqmixer.errors import RunError, SeqmixerError
from seqmixer.evaluation import SCORES, read_scores
from seqmixer.experiments.report.page import Chapter, Curves, History, Page, embedded, require_extra
from seqmixer.runs import read_dimensions
from seqmixer.storage.identity import read_config
from seqmixer.training.callbacks import Event
from seqmixer.training.log import parse_event

HOST = "127.0.0.1"


@dataclass
class Tail:
    """The events of a log so far. Each call reads on from where the last one ended; a log that was replaced, anew.

    A run that resumes replaces its log: it drops the epochs that it does again.
    """

    folder: Path
    events: list[Event] = field(default_factory=list)
    generation: int = 0  # of logs
    offset: int = 0  # of the first line that is not read, in bytes
    file: int | None = None  # that was read: its number in the file system

    def read(self) -> None:
        try:
            with open(self.folder / "log.jsonl", "rb") as log:
                state = os.fstat(log.fileno())
                if state.st_ino != self.file or state.st_size < self.offset:
                    self.events, self.offset, self.file = [], 0, state.st_ino
                    self.generation += 1
                log.seek(self.offset)
                *lines, _ = log.read().split(b"\n")  # the last one has no end yet
        except FileNotFoundError:
            return
        for line in lines:
            self.events.append(parse_event(line, f"{log.name}, from byte {self.offset} on"))
            self.offset += len(line) + 1


class Watched:
    """A run folder, which may not be there yet."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.tail, self.lock = folder, Tail(folder), Lock()

    def page(self) -> str:
        name = self.folder.resolve().name
        history = History(name, "var(--run-0)", [])
        return Page(f"Run: {self.folder}", "…", [Chapter("Learning", [Curves([history])])], live=True).html()

    def news(self, generation: int, have: int) -> Mapping[str, Any]:
        """The events after the first so many, or all where a log has another generation."""
        with self.lock:
            try:
                self.tail.read()
                status = self.status()
            except SeqmixerError as error:
                status = str(error)
            known = have if generation == self.tail.generation else 0
            return {"generation": self.tail.generation, "events": self.tail.events[known:], "status": status}

    def status(self) -> str:
        """Where the run is, in a line."""
        done = [event for event in self.tail.events if event["event"] == "epoch"]
        if not (self.folder / "task.json").exists():
            return f"Waiting for {self.folder}: it has not begun"
        planned = run_length(read_config(self.folder), read_dimensions(self.folder).length)
        over = len(done) >= planned or any(event["event"] == "end" for event in self.tail.events)
        if over and (self.folder / SCORES).exists():
            scores = read_scores(self.folder)
            return f"{scores.metric} {scores.test:.2f} on the test split, after {len(done)} epochs"
        if not done:
            return f"The first of {planned} epochs"
        return f"{len(done)} of {planned} epochs; {done[-1]['stage']}"


def server(folder: Path, port: int) -> ThreadingHTTPServer:
    """For this machine alone, at a port; 0 takes any that is free."""
    require_extra()
    watched = Watched(folder)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            if self.headers.get("Host", "") not in [f"{name}:{serving.server_port}" for name in (HOST, "localhost")]:
                self.send_error(403)  # a page elsewhere whose name leads here
            elif url.path == "/":
                self.answer("text/html", watched.page())
            elif url.path == "/events":
                asked = {name: int(values[0]) for name, values in parse_qs(url.query).items() if values[0].isdecimal()}
                news = watched.news(asked.get("generation", -1), asked.get("have", 0))
                self.answer("application/json", embedded(news))
            else:
                self.send_error(404)

        def answer(self, kind: str, text: str) -> None:
            content = text.encode()
            self.send_response(200)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *values: Any) -> None:
            """Nothing: a page asks every other second."""

    try:
        serving = ThreadingHTTPServer((HOST, port), Handler)
    except OSError as error:
        raise RunError(f"--port {port}: {error.strerror}; choose another, or remove it") from None
    return serving
