"""Readers that are slow or stuck: they are told that they missed something, and nobody else notices."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI
from tests.conformance.rawhttp import EventSocket, plain_headers
from tests.server import ServerProcess, scripted_config

from .picture import Json, text_of
from .test_clients import WEATHER
from .traveller import said

pytestmark = pytest.mark.slow

MIB = 1 << 20
DEADLINE = 60.0
STUCK = 4
FLOODS = 40
"""Turns of 512 KiB each."""
MOST_GROWTH = 64 * MIB
SETTINGS = """
[server]
keepalive = 0.5
stream_buffer = "3 MiB"
shutdown_grace = 1
"""
FLOOD = """
[otherwise]
answer = [{ text = "TEXT", delta_size = 1024 }]
""".replace("TEXT", "".join(f"{number:07d} " for number in range(MIB // 16)))
ECHO = """
[[rule]]
when = { newest = "result" }
answer = [{ text = "It was long." }]

[[rule]]
when = { has_tool = "weather" }
answer = [{ call = "weather", arguments = { city = "Oslo" } }]

[otherwise]
answer = [{ text = "You said: {user}" }]
"""
IDLE = "agent.session.idle"
DELTA = "agent.session.turn.output_text.delta"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    config = scripted_config(tmp_path, {"flood": FLOOD, "echo": ECHO}, SETTINGS)
    with ServerProcess(config, tmp_path / "data") as process:
        yield process


@pytest.fixture
def client(server: ServerProcess) -> Iterator[OpenAI]:
    with OpenAI(base_url=server.base_url, api_key=server.api_key, timeout=DEADLINE) as opened:
        yield opened


def create(client: OpenAI, model: str, *tools: Any) -> str:
    session = client.beta.agents.sessions.create(
        agent={"model": model, "tools": list(tools)}, environment={"type": "none"}, input="Hello."
    )
    return session.id


def open_stream(server: ServerProcess, session_id: str, **options: Any) -> EventSocket:
    target = f"/v1/agents/sessions/{session_id}/events"
    return EventSocket(server.address, "GET", target, plain_headers(server.api_key), **options)


class Flood:
    """Follows a session on a thread and has it write `turns` times; keeps the texts its deltas make up."""

    def __init__(self, client: OpenAI, server: ServerProcess, session_id: str, turns: int) -> None:
        self.texts: dict[str, str] = {}
        self._client = client
        self._session_id = session_id
        self._left = turns
        self._stream = open_stream(server, session_id)
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        self._thread.join(DEADLINE * 2)
        assert not self._thread.is_alive(), "the flood does not end"
        assert self._left < 0, "the stream ended before its time"

    def _follow(self) -> None:
        pieces: dict[str, list[str]] = {}
        with closing(self._stream):
            for event in self._stream.events():
                if event["type"] == DELTA:
                    pieces.setdefault(event["item_id"], []).append(event["delta"])
                if event["type"] == IDLE:
                    self._left -= 1
                    if self._left < 0:
                        break
                    self._client.beta.agents.sessions.events.create(self._session_id, events=[said("More.")])
        self.texts = {item_id: "".join(parts) for item_id, parts in pieces.items()}


def most_memory(server: ServerProcess) -> int:
    """The most the server ever had in memory, in bytes."""
    for line in Path(f"/proc/{server.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the system does not tell")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the server's memory from /proc")
def test_stuck_readers_cost_neither_memory_nor_anybody_else_time(
    server: ServerProcess, client: OpenAI
) -> None:
    Flood(client, server, create(client, "flood"), FLOODS).wait()
    without = most_memory(server)
    session_id, other = create(client, "flood"), create(client, "echo")
    with open_stream(server, other) as stream:
        stream.events_to(IDLE)
    with ExitStack() as stack:
        stuck = [
            stack.enter_context(open_stream(server, session_id, receive_buffer=4096)) for _ in range(STUCK)
        ]
        flood = Flood(client, server, session_id, FLOODS)
        for number in range(20):
            text = f"message {number}"
            with client.beta.agents.sessions.stream(other, input=text) as stream:
                assert stream.get_final_result().output_text == f"You said: {text}"
        flood.wait()
        growth = most_memory(server) - without
        print(
            f"{without / MIB:.1f} MiB at most without stuck readers, {growth / MIB:.1f} MiB more with {STUCK}"
        )
        assert growth < MOST_GROWTH
        check_whole(client, session_id, flood)
        for reader in stuck:
            check_interrupted(client, server, session_id, list(reader.events()))


def check_whole(client: OpenAI, session_id: str, flood: Flood) -> None:
    """The reader that kept up was told every character."""
    listed = client.beta.agents.sessions.items.list(session_id, order="desc", limit=100)
    items = [item.to_dict() for item in listed]
    texts = {item["id"]: text_of(item) for item in items if item.get("role") == "assistant"}
    assert len(flood.texts) == FLOODS
    assert {item_id: texts[item_id] for item_id in flood.texts} == flood.texts


def check_interrupted(client: OpenAI, server: ServerProcess, session_id: str, events: list[Json]) -> None:
    """What the stuck reader finds in the end: a beginning, the error, and a cursor to come back with."""
    *_, last = events
    assert (last["type"], last["error"]["code"]) == ("error", "stream_interrupted")
    assert "error" not in [event["type"] for event in events[:-1]]
    assert last["session_id"] == session_id
    seen = [event["event_id"] for event in events]
    assert len(set(seen)) == len(seen)
    page: Any = client.get(
        f"{server.url}/perdure/v1/sessions/{session_id}/events",
        cast_to=object,
        options={"params": {"after": seen[-1], "limit": 1}},
    )
    missed = page["data"][0]["event_id"]
    assert missed not in seen
    stored = [identity for identity in seen if "d" not in identity.rpartition("_")[2]]
    if stored:
        # Those ids end with their place in the session.
        assert int(missed.rpartition("_")[2]) == int(stored[-1].rpartition("_")[2]) + 1


def test_an_event_larger_than_the_buffer_reaches_who_waits_for_it(
    server: ServerProcess, client: OpenAI
) -> None:
    """A result of 5 MiB, where a reader may be behind by 3 MiB."""
    result = "7 °C. " * (5 * MIB // 7)
    session_id = create(client, "echo", WEATHER)
    with open_stream(server, session_id) as reader:
        (action,) = reader.events_to("agent.session.requires_action")[-1]["session"]["required_actions"]
        event = {"type": "agent.session.input.tool_result", "success": True, "output": result}
        event |= {"turn_id": action["turn_id"], "call_id": action["call_id"]}
        client.beta.agents.sessions.events.create(session_id, events=[event])  # type: ignore[list-item]
        added = [e["item"] for e in reader.events_to(IDLE) if e["type"].endswith("item.added")]
    assert [item["output"] for item in added if item["type"] == "function_call_output"] == [result]


def test_a_stuck_reader_does_not_hold_up_the_end_of_the_server(server: ServerProcess, client: OpenAI) -> None:
    session_id = create(client, "flood")
    with open_stream(server, session_id, receive_buffer=4096):
        Flood(client, server, session_id, turns=3).wait()
        server.send_signal(signal.SIGTERM)
        assert server.wait() == 0
