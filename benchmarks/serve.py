"""Many requests at a time to `seqmixer serve`: whether all are answered, how long each takes, the server's memory.

python benchmarks/serve.py runs/toy-translation --requests 10000 --at-once 50
"""

import argparse
import asyncio
import json
import platform
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from statistics import quantiles

import seqmixer

HEAD = "POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--at-once", type=int, default=50)
    parser.add_argument("--beam", type=int, default=1)
    asked = parser.parse_args()
    sources = [meta["source"] for meta in seqmixer.load(asked.run).task().test.meta]
    command = [sys.executable, "-m", "seqmixer", "serve", str(asked.run), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            port = int(server.stdout.readline().split()[0].rpartition(":")[2])
            bodies = [
                json.dumps({"sources": [random.choice(sources)], "beam": asked.beam}) for _ in range(asked.requests)
            ]
            asyncio.run(load(port, bodies[: asked.requests // 10], asked.at_once))  # warms up
            before, began = memory(server.pid), time.perf_counter()
            taken, statuses = asyncio.run(load(port, bodies, asked.at_once))
            seconds, after = time.perf_counter() - began, memory(server.pid)
        finally:
            server.terminate()
    cuts = quantiles(taken, n=100)
    times = ", ".join(f"p{p} {cuts[p - 1]:.0f} ms" for p in (50, 99))
    print(f"{asked.requests:,} requests, {asked.at_once} at a time, beam {asked.beam}: {dict(statuses)}")
    print(f"{asked.requests / seconds:.0f} a second; {times}, longest {max(taken):.0f} ms")
    print(f"memory of the server {before:.0f} MiB before, {after:.0f} MiB after; {platform.platform()}")


async def load(port: int, bodies: list[str], at_once: int) -> tuple[list[float], Counter[int]]:
    """The milliseconds that each answer took, and how many had which status."""
    left, taken, statuses = iter(bodies), list[float](), Counter[int]()

    async def caller() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for body in left:
            began = time.perf_counter()
            writer.write(f"{HEAD}Content-Length: {len(body)}\r\n\r\n{body}".encode())
            answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            found = json.loads(await reader.readexactly(int(answer.partition("content-length:")[2].split()[0])))
            taken.append(1000 * (time.perf_counter() - began))
            statuses[int(answer.split()[1]) if found["results"][0]["greedy"]["words"] else 0] += 1
        writer.close()

    await asyncio.gather(*(caller() for _ in range(at_once)))
    return taken, statuses


def memory(process: int) -> float:
    """MiB that a process has in memory."""
    asked = ["ps", "-o", "rss=", "-p", str(process)]
    return int(subprocess.run(asked, capture_output=True, text=True, check=True).stdout) / 1024


if __name__ == "__main__":
    main()
