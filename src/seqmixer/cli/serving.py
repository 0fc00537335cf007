"""Try runs on a page, and ask them by JSON."""

from pathlib import Path
from typing import Annotated

import typer

from seqmixer.cli.options import app, put

RATE = 600  # requests a minute from an address, where others can ask


@app.command()
def serve(
    runs: Annotated[list[Path], typer.Argument(help="Run folders; several stand side by side.")],
    host: Annotated[
        str, typer.Option(help="Where to listen. 0.0.0.0: on every network of this machine.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 7860,
    rate: Annotated[
        int | None,
        typer.Option(
            min=1, help="Requests a minute from one address. Default: 600; unlimited where only this machine can ask."
        ),
    ] = None,
) -> None:
    """Serve runs on this machine: a page to try them in a browser, and a JSON endpoint (docs/serve.md).

    Greedy search, beam and samples, with the probability of each word, the attention and unknown words. Nothing of a
    run folder is executed, and nothing leaves the machine. Ctrl-C ends it. Needs the extra `serve`.

    \b
    seqmixer serve runs/mine
    seqmixer serve runs/xent runs/mine --port 8000
    curl --json '{"sources": ["ein hund"], "beam": 5}' http://127.0.0.1:8000/generate
    """
    from seqmixer.serve import web
    from seqmixer.serve.service import Service, opened

    web.require_extra()
    with web.listening(host, port) as listener:
        service = Service(opened(runs))
        url, local = web.address(listener)
        a_minute = rate or (None if local else RATE)
        web.serve(service, listener, a_minute, lambda: put(f"{url}  Ctrl-C ends it"))
