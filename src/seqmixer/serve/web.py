"""The server: `POST /generate` and `GET /health`, with limits on size and rate, and the page beside them."""

import asyncio
import socket
import traceback
from collections.abc import Callable
from dataclasses import asdict
from importlib.util import find_spec
from ipaddress import ip_address
from typing import TYPE_CHECKING

from seqmixer import __version__, files
from seqmixer.errors import ConfigError, DataError, SeqmixerError, missing_extra
from seqmixer.parallel.workers import stop_handler
from seqmixer.serve.limits import BODY, Busy, Question, Rate
from seqmixer.serve.service import Service

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.requests import Request
    from starlette.responses import Response

GOODBYE = 2  # seconds that open connections have once the server is stopped


class TooLarge(SeqmixerError):
    """A request with too many bytes."""


class NotJson(SeqmixerError):
    """A request that does not say it is JSON: a page of another site may send such ones without asking."""


STATUS = {TooLarge: 413, NotJson: 415, Busy: 429}  # of other errors that the caller can fix: 400


def application(service: Service, a_minute: int | None) -> "FastAPI":
    """The endpoint and the page, for any ASGI server."""
    from fastapi import FastAPI
    from starlette.requests import Request
    from starlette.responses import JSONResponse

    from seqmixer.serve.page import mount

    rate = Rate(a_minute)
    app = FastAPI(title="seqmixer", docs_url=None, redoc_url=None, openapi_url=None)

    async def generate(request: Request) -> "Response":
        if request.method != "POST":
            return JSONResponse({"error": "ask by POST, with a JSON object"}, 405, {"Allow": "POST"})
        try:
            rate.take(request.client.host if request.client else "")
            question = files.parse_json(await body(request), Question, "request", DataError)
            served, answers = service.ask(question)
            found = await asyncio.gather(*map(asyncio.wrap_future, answers))
            return JSONResponse({"run": served.name, "results": [asdict(each) for each in found]})
        except SeqmixerError as error:
            status = STATUS.get(type(error), 400)
            return JSONResponse({"error": str(error)}, status, {"Retry-After": "1"} if status == 429 else {})
        except Exception:
            traceback.print_exc()
            return JSONResponse({"error": "an error of the server; its terminal has more"}, 500)

    async def health(request: Request) -> "Response":
        runs = {
            name: {"reads": each.reads, "length": each.run.dimensions.length} for name, each in service.served.items()
        }
        return JSONResponse({"status": "ok", "seqmixer": __version__, "runs": runs, "waiting": len(service.waiting)})

    app.add_route("/generate", generate, methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"])
    app.add_route("/health", health, methods=["GET"])
    mount(app, service, rate)
    return app


async def body(request: "Request") -> bytes:
    """What is posted, read no further than it may be long."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise NotJson("the request must have the header Content-Type: application/json")
    content = bytearray()
    async for part in request.stream():
        content += part
        if len(content) > BODY:
            raise TooLarge(f"the request has more than {BODY:,} bytes")
    return bytes(content)


def listening(host: str, port: int) -> socket.socket:
    """A socket at this address. Port 0 takes any that is free."""
    try:
        (family, kind, protocol, _, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        listener = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"--host {host}: no address of this machine ({error})") from None
    if hasattr(socket, "SO_REUSEADDR") and not hasattr(socket, "SO_EXCLUSIVEADDRUSE"):
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # not on Windows: there two may share a port
    try:
        listener.bind(address)
        listener.listen()
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"cannot listen at {host}, port {port} ({error.strerror}); choose another port: --port 0 takes a free one"
        ) from None
    return listener


def address(listener: socket.socket) -> tuple[str, bool]:
    """The URL of a socket, and whether only this machine can ask there."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}", ip_address(host).is_loopback


def serve(service: Service, listener: socket.socket, a_minute: int | None, ready: Callable[[], object]) -> None:
    """Answer until Ctrl-C or SIGTERM, then end in good order. `ready` is called when the address answers."""
    import uvicorn

    app = application(service, a_minute)
    config = uvicorn.Config(app, log_level="critical", access_log=False, timeout_graceful_shutdown=GOODBYE)
    server = uvicorn.Server(config)
    try:
        with stop_handler(server.handle_exit):  # uvicorn's own, which raises the signal again at its end
            ready()  # the socket listens: who asks before the next line runs is answered after it
            server.run(sockets=[listener])
    finally:
        service.close()


def require_extra() -> None:
    if find_spec("gradio") is None:
        raise missing_extra("a server needs gradio", "serve")
