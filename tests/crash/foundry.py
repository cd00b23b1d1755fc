"""The process behind `forge.py`: it forks a process for each order, and tells what becomes of it.

It has imported the libraries and the protocol's types, which keep no state; everything else of
perdure is imported anew in each process. Orders are JSON lines on standard input; at its end, every
process is killed. What it says are lines that begin with the order's place: `0 started 123`,
`0 printed perdure worker ready`, `0 logged …`, `0 stopped`, `0 ended -9`.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import selectors
import signal
import sys
from dataclasses import dataclass, field
from typing import Any, NoReturn

LIBRARIES = (
    *("aiohttp", "alembic.command", "fastapi", "httptools", "jiter", "jsonschema_rs", "orjson", "pydantic"),
    *("nats.aio.client", "procrastinate", "procrastinate.worker", "prometheus_client", "psycopg"),
    *("psycopg_pool", "rich.console", "sqlalchemy.dialects.postgresql.psycopg"),
    *("sqlalchemy.dialects.sqlite", "typer", "uvicorn", "uvloop"),
    *("uvicorn.lifespan.on", "uvicorn.loops.auto", "uvicorn.protocols.http.httptools_impl"),
)
ORDERS = 0
DESCRIPTORS = 1024


@dataclass
class Output:
    """What a process writes to one of its two streams, and what of a line has come so far."""

    place: int
    word: str
    descriptor: int
    begun: bytes = b""

    def read(self) -> bool:
        """Pass on what is there; False at the end."""
        read = os.read(self.descriptor, 65536)
        *lines, self.begun = (self.begun + read).split(b"\n")
        for line in lines:
            say(f"{self.place} {self.word} ".encode() + line)
        return bool(read)


@dataclass
class Foundry:
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    places: dict[int, int] = field(default_factory=dict)
    outputs: dict[int, list[Output]] = field(default_factory=dict)
    orders: bytes = b""

    def run(self) -> None:
        """Work until the orders end."""
        ended, wake = os.pipe()
        os.set_blocking(ended, False)
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self.selector.register(ORDERS, selectors.EVENT_READ)
        self.selector.register(ended, selectors.EVENT_READ)
        while True:
            for key, _ in self.selector.select():
                if key.fd == ended:
                    os.read(ended, 4096)
                    self.look()
                elif key.fd == ORDERS:
                    if not self.take_orders():
                        return
                elif key.fd in self.selector.get_map() and not key.data.read():
                    self.close(key.data)

    def take_orders(self) -> bool:
        read = os.read(ORDERS, 65536)
        *lines, self.orders = (self.orders + read).split(b"\n")
        for line in lines:
            self.start(json.loads(line))
        if read:
            return True
        for pid in self.places:
            os.kill(pid, signal.SIGKILL)
        return False

    def start(self, order: dict[str, Any]) -> None:
        printed, logged = os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(printed[1], 1)
            os.dup2(logged[1], 2)
            become(order)
        place = order["place"]
        self.places[pid] = place
        self.outputs[pid] = []
        for word, (reading, writing) in (("printed", printed), ("logged", logged)):
            os.close(writing)
            output = Output(place, word, reading)
            self.outputs[pid].append(output)
            self.selector.register(reading, selectors.EVENT_READ, output)
        say(f"{place} started {pid}".encode())

    def look(self) -> None:
        """See which processes have stopped or ended."""
        for pid, place in tuple(self.places.items()):
            found, state = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
            if found == 0:
                continue
            if os.WIFSTOPPED(state):
                say(f"{place} stopped".encode())
                continue
            for output in tuple(self.outputs[pid]):
                while output in self.outputs[pid]:
                    if not output.read():
                        self.close(output)
            del self.places[pid], self.outputs[pid]
            say(f"{place} ended {os.waitstatus_to_exitcode(state)}".encode())

    def close(self, output: Output) -> None:
        self.selector.unregister(output.descriptor)
        os.close(output.descriptor)
        for outputs in self.outputs.values():
            if output in outputs:
                outputs.remove(output)


def become(order: dict[str, Any]) -> NoReturn:
    """Turn this fork into the ordered process."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.closerange(3, DESCRIPTORS)  # those of the foundry
    os.environ.update(order["environ"])
    sys.argv = ["perdure", *order["arguments"]]
    from perdure.cli.main import app

    app()
    raise AssertionError("the command always exits")


def say(line: bytes) -> None:
    os.write(1, line + b"\n")


def main() -> None:
    for name in LIBRARIES:
        importlib.import_module(name)
    for room in ("perdure.wire", "perdure.schema"):
        for module in pkgutil.iter_modules(importlib.import_module(room).__path__):
            importlib.import_module(f"{room}.{module.name}")
    Foundry().run()


if __name__ == "__main__":
    main()
