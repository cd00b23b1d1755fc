"""Replay of stored events behind a cursor: an extension that changes nothing while it is not used."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from openai import OpenAI

from .conftest import Gate
from .inputs import NONE, WEATHER, message, tool_result
from .watch import Watcher, until_status

TURN = "agent.session.turn."
DELTA = f"{TURN}output_text.delta"


def frames(http: httpx2.Client, session_id: str, **query: str) -> Iterator[dict[str, Any]]:
    with http.stream("GET", f"/agents/sessions/{session_id}/events", params=query) as stream:
        for line in stream.iter_lines():
            if line.startswith("data: "):
                yield json.loads(line[6:])


def stored(http: httpx2.Client, session_id: str, **query: Any) -> dict[str, Any]:
    url = str(http.base_url).replace("/v1", "/perdure/v1")
    answer = http.get(f"{url}sessions/{session_id}/events", params=query)
    assert answer.status_code == 200, answer.text
    page: dict[str, Any] = answer.json()
    return page


def all_stored(http: httpx2.Client, session_id: str, limit: int = 1000) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    query: dict[str, Any] = {"limit": limit}
    while True:
        page = stored(http, session_id, **query)
        found += page["data"]
        if not page["has_more"]:
            return found
        query["after"] = page["last_id"]


def a_tool_turn(client: OpenAI) -> tuple[str, list[dict[str, Any]]]:
    """A session with one turn that called a function, and the events as they were said."""
    sessions = client.beta.agents.sessions
    said: list[dict[str, Any]] = []
    events = sessions.create(
        agent={"model": "weather", "tools": [WEATHER]}, environment=NONE, input="The weather?", stream=True
    )
    session_id = ""
    for event in events:
        said.append(event.to_dict())
        if event.type == "agent.session.requires_action":
            session_id = event.session.id
            result = tool_result(event.session.required_actions[0])
            sessions.events.create(session_id, events=[result])
    return session_id, said


def test_stored_events_are_those_that_were_said_less_the_deltas(client: OpenAI, raw: httpx2.Client) -> None:
    session_id, said = a_tool_turn(client)
    expected = [event for event in said if not event["type"].endswith(".delta")]
    for event in expected:
        event.pop("obfuscation", None)
    found = all_stored(raw, session_id)
    assert [event["type"] for event in found] == [event["type"] for event in expected]
    assert [event["event_id"] for event in found] == [event["event_id"] for event in expected]
    for mine, theirs in zip(found, expected, strict=True):
        assert {key: mine[key] for key in theirs} == theirs


@pytest.mark.parametrize("limit", [1, 3, 7])
def test_pages_hold_every_event_once(client: OpenAI, raw: httpx2.Client, limit: int) -> None:
    session_id, _ = a_tool_turn(client)
    assert all_stored(raw, session_id, limit) == all_stored(raw, session_id)


def test_a_stream_behind_any_cursor_tells_the_rest_and_goes_on_live(
    client: OpenAI, raw: httpx2.Client
) -> None:
    session_id, _ = a_tool_turn(client)
    everything = all_stored(raw, session_id)
    for position in (0, len(everything) // 2, len(everything) - 1):
        seen: list[dict[str, Any]] = []
        asked = False
        for event in frames(raw, session_id, after=everything[position]["event_id"]):
            seen.append(event)
            if len(seen) >= len(everything) - position - 1 and not asked:
                asked = True
                client.beta.agents.sessions.events.create(session_id, events=[message("Thanks.")])
            if asked and event["type"] == "agent.session.idle" and len(seen) > len(everything) - position:
                break
        rest = everything[position + 1 :]
        assert seen[: len(rest)] == rest
        identities = [event["event_id"] for event in seen]
        assert len(set(identities)) == len(identities)
        everything = all_stored(raw, session_id)
        told = [event for event in seen if not event["type"].endswith(".delta")]
        assert [event["event_id"] for event in told] == [
            event["event_id"] for event in everything[position + 1 :]
        ]


def test_the_header_of_the_event_stream_standard_is_the_same_cursor(
    client: OpenAI, raw: httpx2.Client
) -> None:
    session_id, _ = a_tool_turn(client)
    everything = all_stored(raw, session_id)
    with raw.stream(
        "GET",
        f"/agents/sessions/{session_id}/events",
        headers={"Last-Event-ID": everything[-3]["event_id"]},
    ) as stream:
        lines = (line for line in stream.iter_lines() if line.startswith("data: "))
        assert [json.loads(next(lines)[6:])["event_id"] for _ in range(2)] == [
            event["event_id"] for event in everything[-2:]
        ]


def test_text_that_is_being_written_is_caught_up_with_once(
    client: OpenAI, raw: httpx2.Client, gate: Gate
) -> None:
    sessions = client.beta.agents.sessions
    session = sessions.create(agent={"model": "gated"}, environment=NONE, input=gate.text)
    with Watcher(client, session.id) as watcher:
        delta = watcher.wait(DELTA)
    first = stored(raw, session.id, limit=1)["data"][0]["event_id"]
    texts: dict[str, str] = {}
    for event in frames(raw, session.id, after=first):
        if event["type"] == DELTA:
            texts[event["item_id"]] = texts.get(event["item_id"], "") + event["delta"]
            gate.release()
        if event["type"] == f"{TURN}output_text.done":
            assert texts[event["item_id"]] == event["text"]
        if event["type"] == "agent.session.idle":
            break
    assert texts
    # The id of a delta stands for the stored event before it.
    behind = next(iter(frames(raw, session.id, after=delta.event_id)))
    assert behind["type"] == f"{TURN}output_text.done"


@pytest.mark.parametrize("cursor", ["evt_1", "evt_nonsense_7", "7", "evt__", "evt_x_99999999999999999999"])
def test_a_cursor_of_something_else_is_refused(client: OpenAI, raw: httpx2.Client, cursor: str) -> None:
    session_id, _ = a_tool_turn(client)
    answer = raw.get(f"/agents/sessions/{session_id}/events", params={"after": cursor})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "after"


def test_a_cursor_ahead_of_the_session_is_refused(client: OpenAI, raw: httpx2.Client) -> None:
    session_id, _ = a_tool_turn(client)
    until_status(client, session_id, "idle")
    last = all_stored(raw, session_id)[-1]["event_id"]
    head, _, seq = last.rpartition("_")
    answer = raw.get(f"/agents/sessions/{session_id}/events", params={"after": f"{head}_{int(seq) + 1}"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "after")
