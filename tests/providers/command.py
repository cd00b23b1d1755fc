"""Running a fake provider in a process of its own, for benchmarks."""

from __future__ import annotations

import argparse
import asyncio
import signal
from contextlib import suppress

from tests.providers.answers import Answer, Pacing, Text
from tests.providers.server import FakeProvider, Recorded


def run(provider: type[FakeProvider]) -> None:
    """Serve until SIGTERM or SIGINT. The first line of output is `listening on <base URL>`.

    The answer is one text of `--deltas` pieces, or without that option what the user said.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--deltas", type=int, help="pieces of the answer")
    parser.add_argument("--size", type=int, default=4, help="characters of a piece")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before each frame")
    parser.add_argument("--write-size", type=int, help="bytes per write; default: one frame per write")
    parser.add_argument("--lenient", action="store_true", help="check nothing")
    parser.add_argument("--api-key", help="expected key; default: any")
    options = parser.parse_args()
    planner = None
    if options.deltas is not None:
        word = ("abcdefghijklmnopqrstuvwxyz" * (options.size // 26 + 1))[: options.size - 1] + " "
        pacing = Pacing(delay=options.delay, write_size=options.write_size)
        planned = Answer((Text(word * options.deltas, chunks=options.size),), pacing=pacing)

        def planner(recorded: Recorded) -> Answer:
            server.requests.clear()
            return planned

    server = provider(planner=planner, api_key=options.api_key, strict=not options.lenient)
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(server, options.port))


async def _serve(server: FakeProvider, port: int) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    await server.start(port)
    print(f"listening on {server.base_url}", flush=True)
    await stopped.wait()
    await server.stop()
