"""Event streams as they are on the wire."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from openai import OpenAI
from tests.server import ServerProcess

from .conftest import Gate
from .inputs import NONE, WEATHER, message, tool_result
from .rawhttp import EventSocket, is_comment, plain_headers
from .sessions import create_idle, create_waiting, items
from .watch import until_status

Open = Callable[..., EventSocket]

TURN = "agent.session.turn."
ANSWER = [
    f"{TURN}item.added",
    f"{TURN}content_part.added",
    f"{TURN}output_text.delta",
    f"{TURN}output_text.done",
    f"{TURN}content_part.done",
    f"{TURN}item.done",
]


@pytest.fixture
def opened(server: ServerProcess) -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def create_stream(server: ServerProcess, opened: ExitStack) -> Open:
    """Opens a creation stream of a model."""

    def open_stream(model: str, said: str = "Hello.", *, tools: Any = (), **fields: Any) -> EventSocket:
        body = {
            "agent": {"model": model, "tools": list(tools)},
            "environment": NONE,
            "input": said,
            "stream": True,
            **fields,
        }
        # The official client asks for JSON here; the body alone decides.
        headers = plain_headers(server.api_key, {"Accept": "application/json"})
        return opened.enter_context(
            EventSocket(server.address, "POST", "/v1/agents/sessions", headers, json.dumps(body).encode())
        )

    return open_stream


@pytest.fixture
def session_stream(server: ServerProcess, opened: ExitStack) -> Open:
    """Subscribes to a session."""

    def open_stream(session_id: str, query: str = "") -> EventSocket:
        headers = plain_headers(server.api_key, {"Accept": "text/event-stream"})
        target = f"/v1/agents/sessions/{session_id}/events{query}"
        return opened.enter_context(EventSocket(server.address, "GET", target, headers))

    return open_stream


def collapse(types: list[str]) -> list[str]:
    """The types without immediate repetitions, so that the number of deltas does not matter."""
    return [kind for kind, before in zip(types, ["", *types], strict=False) if kind != before]


def types_of(events: list[dict[str, Any]]) -> list[str]:
    return collapse([event["type"] for event in events])


def test_headers_of_both_streams(client: OpenAI, create_stream: Open, session_stream: Open) -> None:
    for stream, status in ((create_stream("greeter"), 201), (session_stream(create_idle(client).id), 200)):
        assert stream.status == status
        assert (stream.header("content-type") or "").split(";")[0] == "text/event-stream"
        assert "no-cache" in (stream.header("cache-control") or "")
        assert stream.header("x-accel-buffering") == "no"
        assert stream.header("content-length") is None
        assert stream.header("content-encoding") is None
        assert stream.header("x-request-id")


def test_every_frame_is_an_event_line_a_data_line_and_a_blank_line(
    client: OpenAI, create_stream: Open, session_stream: Open, gate: Gate
) -> None:
    stream = create_stream("gated", gate.text)
    frames = []
    for frame in stream.frames():
        frames.append(frame)
        if b"output_text.delta" in frame:
            break
    # Nothing happens until the gate opens, so the next frame is a keep-alive.
    quiet = stream.frame()
    assert quiet is not None
    assert is_comment(quiet)
    gate.release()
    frames += [quiet, *stream.frames()]
    assert len(frames) > 10
    for frame in frames:
        assert re.fullmatch(rb"(:[^\n]*\n|event: [a-z_.]+\ndata: \{[^\n]*\}\n)\n", frame), frame
        assert b"\nid:" not in frame
        assert b"retry:" not in frame
        assert b"[DONE]" not in frame


def test_a_silent_stream_is_kept_alive_with_comments(client: OpenAI, session_stream: Open) -> None:
    stream = session_stream(create_idle(client).id)
    frames = [stream.frame() for _ in range(4)]
    assert frames[0] is not None
    assert frames[0].startswith(b"event: agent.session.idle\n")
    assert all(frame is not None and is_comment(frame) for frame in frames[1:])


def test_a_turn_without_tools_on_the_creation_stream(create_stream: Open) -> None:
    events = list(create_stream("greeter").events())
    assert types_of(events) == [
        "agent.session.created",
        f"{TURN}created",
        f"{TURN}item.added",
        "agent.session.in_progress",
        f"{TURN}in_progress",
        *ANSWER,
        f"{TURN}completed",
        "agent.session.idle",
    ]
    check_turn(events[1:])
    assert events[0]["session"]["status"] == "in_progress"
    assert events[-1]["session"]["status"] == "idle"


def test_a_turn_without_tools_on_the_session_stream(client: OpenAI, session_stream: Open) -> None:
    session = create_idle(client, "greeter")
    stream = session_stream(session.id)
    snapshot = stream.events_to("agent.session.idle")
    assert types_of(snapshot) == ["agent.session.idle"]
    client.beta.agents.sessions.events.create(session.id, events=[message("Again.")])
    events = stream.events_to("agent.session.idle")
    assert types_of(events) == [
        f"{TURN}created",
        f"{TURN}item.added",
        "agent.session.in_progress",
        f"{TURN}in_progress",
        *ANSWER,
        f"{TURN}completed",
        "agent.session.idle",
    ]
    check_turn(events)


def check_turn(events: list[dict[str, Any]]) -> None:
    """A turn of `greeter`: the members of its events and how they agree with each other."""
    by_type: dict[str, dict[str, Any]] = {}
    for event in events:
        by_type.setdefault(event["type"], event)
    created = by_type[f"{TURN}created"]
    turn_id, session_id = created["turn_id"], created["session_id"]
    assert created["turn"]["id"] == turn_id
    assert (created["turn"]["status"], created["turn"]["subagent_id"]) == ("queued", None)
    assert (created["turn"]["started_at"], created["turn"]["completed_at"]) == (None, None)
    assert by_type[f"{TURN}in_progress"]["turn"]["status"] == "in_progress"
    assert by_type[f"{TURN}in_progress"]["turn"]["started_at"] is not None
    assert by_type[f"{TURN}completed"]["turn"]["status"] == "completed"
    assert "usage" in by_type[f"{TURN}completed"]

    added = [event for event in events if event["type"] == f"{TURN}item.added"]
    assert [event["item"]["role"] for event in added] == ["user", "assistant"]
    assert [event["output_index"] for event in added] == [None, 0]
    assert "output_index" in added[0]
    assert added[0]["item"]["status"] == "completed"
    answer = added[1]["item"]
    assert (answer["status"], answer["content"]) == ("in_progress", [])

    place = {"turn_id": turn_id, "item_id": answer["id"], "output_index": 0, "content_index": 0}
    for kind in ("content_part.added", "output_text.delta", "output_text.done", "content_part.done"):
        for event in events:
            if event["type"] == TURN + kind:
                assert {key: event[key] for key in place} == place
    deltas = [event["delta"] for event in events if event["type"] == f"{TURN}output_text.delta"]
    assert by_type[f"{TURN}content_part.added"]["part"] == {"type": "output_text", "text": ""}
    text = by_type[f"{TURN}output_text.done"]["text"]
    assert text == "".join(deltas) == "Hello from the greeter."
    assert by_type[f"{TURN}content_part.done"]["part"] == {"type": "output_text", "text": text}
    done = by_type[f"{TURN}item.done"]
    assert (done["item"]["id"], done["output_index"]) == (answer["id"], 0)
    assert (done["item"]["status"], done["item"]["phase"]) == ("completed", "final_answer")
    assert done["item"]["content"] == [{"type": "output_text", "text": text}]
    for event in events:
        if event["type"].startswith(TURN):
            assert (event["session_id"], event["turn_id"]) == (session_id, turn_id)
        else:
            assert event["session"]["id"] == session_id
            assert "session_id" not in event


CALL_EVENTS = [f"{TURN}item.added", "agent.session.requires_action"]
RESULT_EVENTS = [f"{TURN}item.added", f"{TURN}item.done", "agent.session.in_progress"]


def test_a_turn_with_a_tool_on_the_creation_stream(client: OpenAI, create_stream: Open) -> None:
    stream = create_stream("weather", "The weather?", tools=[WEATHER])
    before = stream.events_to("agent.session.requires_action")
    check_call(client, before)
    after = list(stream.events())
    assert types_of(before) == [
        "agent.session.created",
        f"{TURN}created",
        f"{TURN}item.added",
        "agent.session.in_progress",
        f"{TURN}in_progress",
        *CALL_EVENTS,
    ]
    assert types_of(after) == [*RESULT_EVENTS, *ANSWER, f"{TURN}completed", "agent.session.idle"]
    check_result(before, after)


def test_a_turn_with_a_tool_on_the_session_stream(client: OpenAI, session_stream: Open) -> None:
    session = create_idle(client, "weather", tools=[WEATHER])
    stream = session_stream(session.id)
    stream.events_to("agent.session.idle")
    client.beta.agents.sessions.events.create(session.id, events=[message("The weather?")])
    before = stream.events_to("agent.session.requires_action")
    check_call(client, before)
    after = stream.events_to("agent.session.idle")
    assert types_of(before) == [
        f"{TURN}created",
        f"{TURN}item.added",
        "agent.session.in_progress",
        f"{TURN}in_progress",
        *CALL_EVENTS,
    ]
    assert types_of(after) == [*RESULT_EVENTS, *ANSWER, f"{TURN}completed", "agent.session.idle"]
    check_result(before, after)


def check_call(client: OpenAI, events: list[dict[str, Any]]) -> None:
    """The call that ends these events; it is answered here."""
    call, blocked = events[-2], events[-1]["session"]
    assert call["output_index"] == 0
    item = call["item"]
    assert (item["type"], item["name"], item["status"]) == ("function_call", "weather", "in_progress")
    assert item["arguments"] == {"city": "Oslo"}
    assert item["call_id"] != item["id"]
    assert blocked["status"] == "requires_action"
    assert blocked["required_actions"] == [
        {
            "type": "function_call",
            "turn_id": item["turn_id"],
            "call_id": item["call_id"],
            "name": "weather",
            "arguments": {"city": "Oslo"},
        }
    ]
    (action,) = client.beta.agents.sessions.retrieve(blocked["id"]).required_actions
    client.beta.agents.sessions.events.create(blocked["id"], events=[tool_result(action)])


def check_result(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> None:
    call = before[-2]["item"]
    output, done, resumed = after[:3]
    assert output["output_index"] is None
    assert output["item"] == {
        "id": output["item"]["id"],
        "type": "function_call_output",
        "turn_id": call["turn_id"],
        "call_id": call["call_id"],
        "status": "completed",
        "output": "7 °C",
        "error": None,
    }
    assert done["output_index"] == 0
    assert done["item"] == {**call, "status": "completed"}
    assert resumed["session"]["status"] == "in_progress"
    assert resumed["session"]["required_actions"] == []
    answer = next(event for event in after[3:] if event["type"] == f"{TURN}item.added")
    assert answer["output_index"] == 1


def test_the_creation_stream_ends_right_after_idle_without_a_terminator(create_stream: Open) -> None:
    stream = create_stream("greeter")
    stream.events_to("agent.session.idle")
    assert [frame for frame in stream.frames() if not is_comment(frame)] == []


def test_the_session_stream_stays_open_over_idle(client: OpenAI, session_stream: Open) -> None:
    session = create_idle(client)
    stream = session_stream(session.id)
    stream.events_to("agent.session.idle")
    for number in range(3):
        client.beta.agents.sessions.events.create(session.id, events=[message(f"Message {number}.")])
        assert stream.events_to("agent.session.idle")[0]["type"] == f"{TURN}created"


def test_event_ids_are_unique(client: OpenAI, create_stream: Open) -> None:
    ids = [event["event_id"] for _ in range(2) for event in create_stream("greeter").events()]
    assert len(set(ids)) == len(ids)
    assert all(isinstance(event_id, str) and event_id for event_id in ids)


PADDING = re.compile(r"[A-Za-z0-9]{8,32}")


def check_padding(events: list[dict[str, Any]], *, padded: bool) -> None:
    deltas = [event for event in events if event["type"].endswith(".delta")]
    assert deltas
    for event in events:
        if padded and event in deltas:
            assert PADDING.fullmatch(event["obfuscation"])
        else:
            assert event.get("obfuscation") is None


def test_deltas_are_padded_unless_switched_off(
    client: OpenAI, create_stream: Open, session_stream: Open
) -> None:
    check_padding(list(create_stream("greeter").events()), padded=True)
    for choice in (True, False):
        options = {"include_obfuscation": choice}
        check_padding(list(create_stream("greeter", stream_options=options).events()), padded=choice)
    session = create_idle(client, "greeter")
    queries = {"": True, "?include_obfuscation=true": True, "?include_obfuscation=false": False}
    streams = {query: session_stream(session.id, query) for query in queries}
    for stream in streams.values():
        stream.events_to("agent.session.idle")
    client.beta.agents.sessions.events.create(session.id, events=[message("Again.")])
    for query, stream in streams.items():
        check_padding(stream.events_to("agent.session.idle"), padded=queries[query])


def test_the_choice_reaches_the_official_client(client: OpenAI) -> None:
    session = create_idle(client, "greeter")
    with client.beta.agents.sessions.events.stream(session.id, include_obfuscation=False) as stream:
        client.beta.agents.sessions.events.create(session.id, events=[message("Again.")])
        for event in stream:
            assert event.to_dict().get("obfuscation") is None
            if event.type == "agent.session.turn.completed":
                break


def test_a_query_that_asks_for_a_stream_is_tolerated(client: OpenAI, session_stream: Open) -> None:
    session = create_idle(client)
    for query in ("?stream=true", "?stream=true&include_obfuscation=false"):
        assert session_stream(session.id, query).events_to("agent.session.idle")


@pytest.mark.parametrize("query", ["?include_obfuscation=maybe", "?after=5", "?limit=2"])
def test_other_queries_are_refused(client: OpenAI, session_stream: Open, query: str) -> None:
    stream = session_stream(create_idle(client).id, query)
    assert stream.status == 400
    assert (stream.header("content-type") or "").startswith("application/json")


def test_headers_come_before_there_is_any_event_to_send(
    client: OpenAI, session_stream: Open, gate: Gate
) -> None:
    session = create_idle(client, "held")
    stream = session_stream(session.id)
    assert stream.status == 200
    client.beta.agents.sessions.events.create(session.id, events=[message(gate.text)])
    second = session_stream(session.id)
    assert second.status == 200


def test_all_subscribers_see_the_same_events(client: OpenAI, session_stream: Open) -> None:
    session = create_idle(client, "greeter")
    streams = [session_stream(session.id, "?include_obfuscation=false") for _ in range(5)]
    for stream in streams:
        stream.events_to("agent.session.idle")
    client.beta.agents.sessions.events.create(session.id, events=[message("Again.")])
    seen = [
        [
            {key: value for key, value in event.items() if key != "event_id"}
            for event in stream.events_to("agent.session.idle")
            if not event["type"].endswith(".delta")
        ]
        for stream in streams
    ]
    assert all(events == seen[0] for events in seen)


def test_text_is_the_same_on_the_stream_and_in_the_list(client: OpenAI, session_stream: Open) -> None:
    session = create_idle(client)
    stream = session_stream(session.id)
    stream.events_to("agent.session.idle")
    said = 'Line one.\nLine two.\r\nQuotes " and \\, tabs\t, \u2028, NUL \u0000, 世界 🌍'
    client.beta.agents.sessions.events.create(session.id, events=[message(said)])
    events = stream.events_to("agent.session.idle")
    deltas = "".join(event["delta"] for event in events if event["type"] == f"{TURN}output_text.delta")
    user, answer = items(client, session.id)[-2:]
    assert user.content[0].to_dict()["text"] == said
    assert deltas == answer.content[0].to_dict()["text"] == f"You said: {said}"


def test_a_waiting_call_may_be_answered_while_its_stream_is_open_on_the_same_client(client: OpenAI) -> None:
    session = create_waiting(client)
    (call,) = session.required_actions
    with client.beta.agents.sessions.events.stream(session.id) as stream:
        client.beta.agents.sessions.events.create(session.id, events=[tool_result(call)])
        assert any(event.type == "agent.session.idle" for event in stream_to_idle(stream))
    until_status(client, session.id, "idle")


def stream_to_idle(stream: Any) -> Iterator[Any]:
    for event in stream:
        yield event
        if event.type == "agent.session.idle":
            return
