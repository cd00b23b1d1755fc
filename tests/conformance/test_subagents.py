"""Subagents as clients see them: below the session, on its stream, in stored events, and to operators."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from openai import OpenAI
from tests.server import ServerProcess, scripted_config

from .conftest import Gate, make_client, make_gate
from .inputs import NONE, cancel
from .scripts import MODELS, SETTINGS
from .sessions import items, kinds, text_of, turns
from .test_activity import activity, command
from .test_replay import DELTA, all_stored
from .watch import DEADLINE, Watcher, until, until_status

CREW: Any = {"model": "crew", "multi_agent": {"enabled": True}}
CREATED, ACTIVE, CLOSED = (f"agent.session.subagent.{kind}" for kind in ("created", "active", "closed"))
ADDED, DONE = "agent.session.turn.item.added", "agent.session.turn.item.done"


class Place:
    """One server, its client, and plain HTTP to it."""

    def __init__(self, server: ServerProcess, stack: ExitStack) -> None:
        self.server = server
        self.client = stack.enter_context(make_client(server))
        headers = {"Authorization": f"Bearer {server.api_key}", "OpenAI-Beta": "agents=v1"}
        self.raw = stack.enter_context(
            httpx2.Client(base_url=server.base_url, headers=headers, timeout=DEADLINE)
        )
        self.sessions = self.client.beta.agents.sessions
        self._stack = stack

    def gate(self) -> Gate:
        gate = make_gate(self.server)
        self._stack.callback(gate.release)
        return gate

    def create(self, said: str) -> str:
        return str(self.sessions.create(agent=CREW, environment=NONE, input=said).id)

    def subagents(self, session_id: str) -> list[Any]:
        return list(self.sessions.subagents.list(session_id, order="asc"))

    def running(self, said: str) -> tuple[str, Any, Any]:
        """A session, its subagent and the turn in which that holds."""
        session_id = self.create(said)
        (subagent,) = until(lambda: self.subagents(session_id), bool)
        (turn,) = until(
            lambda: list(self.sessions.subagents.turns.list(subagent.id, session_id=session_id)),
            lambda found: [turn.status for turn in found] == ["in_progress"],
        )
        return session_id, subagent, turn

    def extension(self, path: str, **query: str) -> Any:
        answer = self.raw.get(f"{self.server.url}/perdure/v1/sessions/{path}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def refused(self, path: str) -> str:
        """The message of a 404."""
        answer = self.raw.get(f"/agents/sessions/{path}")
        assert answer.status_code == 404, answer.text
        assert answer.json()["error"]["code"] == "not_found_error"
        return str(answer.json()["error"]["message"])


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A server on a database of each kind."""
    home: Path = tmp_path_factory.mktemp("crew")
    (home / "gates").mkdir()
    database = None
    with ExitStack() as stack:
        if request.param == "postgres":
            postgres = request.getfixturevalue("postgres")
            database = postgres.create_database()
            stack.callback(postgres.drop_database, database)
        config = scripted_config(home, {"crew": MODELS["crew"]}, SETTINGS)
        yield Place(stack.enter_context(ServerProcess(config, home / "data", database=database)), stack)


def test_the_work_of_a_subagent_is_listed_below_it_and_nowhere_else(place: Place) -> None:
    session_id = place.create("ask Look.")
    root = until_status(place.client, session_id, "idle").agent
    (subagent,) = place.subagents(session_id)
    assert place.sessions.subagents.retrieve(subagent.id, session_id=session_id) == subagent
    assert (subagent.name, subagent.status, subagent.closed_at) == ("scout", "active", None)
    assert (subagent.session_id, subagent.parent_agent_id) == (session_id, root.id)
    assert [part.text for part in subagent.instructions] == ["Look."]

    below = place.sessions.subagents
    (turn,) = below.turns.list(subagent.id, session_id=session_id)
    assert (turn.subagent_id, turn.agent_id, turn.status) == (subagent.id, subagent.id, "completed")
    assert turn.usage is not None
    assert turn.usage.total_tokens == 33
    own = list(below.items.list(subagent.id, session_id=session_id, order="asc"))
    assert kinds(own) == ["user", "assistant", "assistant"]
    assert text_of(own[-1]) == "I was told: Look."
    by_turn = below.turns.items.list(turn.id, session_id=session_id, subagent_id=subagent.id, order="asc")
    assert list(by_turn) == own

    assert [turn.subagent_id for turn in turns(place.client, session_id)] == [None]
    listed = items(place.client, session_id)
    assert kinds(listed) == [
        *("user", "create_subagent_call", "wait_for_subagents_call", "agent_message", "assistant"),
    ]
    assert listed[3].sender_agent_id == subagent.id
    assert listed[3].recipient_agent_id == root.id
    assert not {item.id for item in own} & {item.id for item in listed}


def test_a_turn_is_found_by_its_id_and_its_items_where_its_agent_is(place: Place) -> None:
    session_id = place.create("ask Look.")
    until_status(place.client, session_id, "idle")
    (subagent,) = place.subagents(session_id)
    (child,) = place.sessions.subagents.turns.list(subagent.id, session_id=session_id)
    (root,) = turns(place.client, session_id)
    assert place.sessions.turns.retrieve(child.id, session_id=session_id) == child
    found = place.sessions.subagents.turns.retrieve(child.id, session_id=session_id, subagent_id=subagent.id)
    assert found == child

    where = f"/v1/agents/sessions/{session_id}/subagents/{subagent.id}/turns/{child.id}"
    assert where in place.refused(f"{session_id}/turns/{child.id}/items")
    for path in ("", "/items"):
        message = place.refused(f"{session_id}/subagents/{subagent.id}/turns/{root.id}{path}")
        assert f"/v1/agents/sessions/{session_id}/turns/{root.id}" in message
        place.refused(f"{session_id}/subagents/{subagent.id}/turns/turn_unknown{path}")


def test_a_subagent_of_another_session_is_none_of_this_one(place: Place) -> None:
    one, other = place.create("ask Look."), place.create("ask Look.")
    for session_id in (one, other):
        until_status(place.client, session_id, "idle")
    (foreign,) = place.subagents(other)
    (turn,) = place.sessions.subagents.turns.list(foreign.id, session_id=other)
    (own,) = place.subagents(one)
    for path in ("", "/items", "/turns", f"/turns/{turn.id}", f"/turns/{turn.id}/items"):
        message = place.refused(f"{one}/subagents/{foreign.id}{path}")
        assert foreign.id in message
        assert f"/v1/agents/sessions/{one}/subagents" in message
    for path in (f"turns/{turn.id}", f"subagents/{own.id}/turns/{turn.id}"):
        assert other not in place.refused(f"{one}/{path}")
    listing = place.raw.get(f"/agents/sessions/{one}/subagents", params={"after": foreign.id})
    assert (listing.status_code, listing.json()["error"]["param"]) == (400, "after")
    place.refused("sess_unknown/subagents")


def test_another_project_sees_no_subagent_and_a_reading_key_does(place: Place) -> None:
    session_id = place.create("ask Look.")
    until_status(place.client, session_id, "idle")
    (subagent,) = place.subagents(session_id)
    reading = place.server.create_key("--scope", "read")
    with make_client(place.server, api_key=reading) as reader:
        assert list(reader.beta.agents.sessions.subagents.list(session_id)) == [subagent]
    foreign = place.server.create_key("--project", "another")
    with make_client(place.server, api_key=foreign) as stranger:
        for read in (
            lambda: stranger.beta.agents.sessions.subagents.list(session_id),
            lambda: stranger.beta.agents.sessions.subagents.retrieve(subagent.id, session_id=session_id),
        ):
            with pytest.raises(openai.NotFoundError):
                read()


def test_the_stream_tells_of_coordination_in_causal_order_and_nothing_of_the_work(place: Place) -> None:
    said = [
        event.to_dict()
        for event in place.sessions.create(agent=CREW, environment=NONE, input="open and closed", stream=True)
    ]
    session_id = said[0]["session"]["id"]
    (subagent,) = place.subagents(session_id)
    own = place.sessions.subagents.items.list(subagent.id, session_id=session_id)
    told = {event["item"]["id"] for event in said if "item" in event}
    told |= {event["item_id"] for event in said if "item_id" in event}
    assert not told & {item.id for item in own}
    assert {event["turn"]["subagent_id"] for event in said if "turn" in event} == {None}

    story = [_word(event) for event in said]
    assert [word for word in story if word] == [
        *("create_subagent_call added in_progress", "subagent created active", "create_subagent_call done"),
        *("wait_for_subagents_call added in_progress", "wait_for_subagents_call done"),
        "agent_message added",
        *("close_subagent_call added in_progress", "subagent closed closed", "close_subagent_call done"),
        *("resume_subagent_call added in_progress", "subagent active active", "resume_subagent_call done"),
        *("close_subagent_call added in_progress", "subagent closed closed", "close_subagent_call done"),
    ]
    snapshots = [event["subagent"] for event in said if "subagent" in event]
    assert {snapshot["opened_at"] for snapshot in snapshots} == {subagent.opened_at}
    assert [snapshot["closed_at"] is None for snapshot in snapshots] == [True, False, True, False]
    assert subagent.status == "closed"

    # A stored event is what was said, the state of then included.
    kept = [event for event in said if event["type"] != DELTA]
    assert all_stored(place.raw, session_id) == kept
    assert all_stored(place.raw, session_id, limit=1) == kept


def _word(event: dict[str, Any]) -> str:
    """What is seen of an event of coordination; nothing of others."""
    if "subagent" in event:
        return f"subagent {event['type'].rpartition('.')[2]} {event['subagent']['status']}"
    item = event.get("item", {"type": "message"})
    if event["type"] not in (ADDED, DONE) or item["type"] == "message":
        return ""
    if event["type"] == DONE:
        return f"{item['type']} done"
    return " ".join([item["type"], "added", *([item["status"]] if "status" in item else [])])


def test_a_new_reader_is_told_of_the_wait_that_is_over_later(place: Place) -> None:
    gate = place.gate()
    session_id, _, _ = place.running(f"ask {gate.text}")
    until(lambda: kinds(items(place.client, session_id))[-1], lambda kind: kind == "wait_for_subagents_call")
    with Watcher(place.client, session_id) as watcher:
        added = watcher.wait(lambda e: e.type == ADDED and e.item.type == "wait_for_subagents_call")
        assert added.item.status == "in_progress"
        gate.release()
        watcher.wait("agent.session.idle")
        done = watcher.wait(lambda e: e.type == DONE and e.item.id == added.item.id)
        assert (done.item.status, done.output_index) == ("completed", added.output_index)
        assert DELTA not in watcher.types[: watcher.types.index(DONE)]


def test_a_subagent_that_runs_in_an_idle_session_is_seen_and_stopped(place: Place) -> None:
    session_id, subagent, turn = place.running(f"leave {place.gate().text}")
    assert until_status(place.client, session_id, "idle").required_actions == []
    found = activity(place.raw)[session_id]
    assert (found["status"], found["turn"]) == ("idle", None)
    (shown,) = found["subagents"]
    assert (shown["id"], shown["name"], shown["parent_agent_id"]) == (
        *(subagent.id, "scout", subagent.parent_agent_id),
    )
    assert (shown["turn"]["id"], shown["turn"]["status"]) == (turn.id, "in_progress")
    assert session_id not in activity(place.raw, status="in_progress")
    listed = command(place.server, "ps")
    assert (listed.returncode, session_id in listed.stdout) == (0, True), listed.stderr
    with pytest.raises(openai.ConflictError, match="running subagents"):
        place.sessions.delete(session_id)

    stopped = command(place.server, "stop", session_id)
    assert stopped.returncode == 0, stopped.stderr
    until(lambda: place.sessions.turns.retrieve(turn.id, session_id=session_id).status, "cancelled".__eq__)
    assert place.sessions.subagents.retrieve(subagent.id, session_id=session_id).status == "active"
    assert session_id not in activity(place.raw)
    assert place.sessions.delete(session_id).deleted
    place.refused(f"{session_id}/subagents")


def test_a_cancel_ends_the_turns_of_all_agents(place: Place) -> None:
    session_id, subagent, turn = place.running(f"ask {place.gate().text}")
    until(lambda: activity(place.raw)[session_id]["turn"]["model_calls"], lambda calls: calls == 2)
    place.sessions.events.create(session_id, events=[cancel()])
    until_status(place.client, session_id, "idle")
    assert [turn.status for turn in turns(place.client, session_id)] == ["cancelled"]
    assert place.sessions.turns.retrieve(turn.id, session_id=session_id).status == "cancelled"
    assert place.sessions.subagents.retrieve(subagent.id, session_id=session_id).status == "active"


def test_what_each_agent_has_used_adds_up_to_the_session(place: Place) -> None:
    session_id = place.create("ask Look.")
    session = until_status(place.client, session_id, "idle")
    (subagent,) = place.subagents(session_id)
    shown = place.extension(f"{session_id}/usage")
    root, child = shown["agents"]
    assert (root["agent_id"], root["name"], root["parent_agent_id"]) == (session.agent.id, None, None)
    assert (child["agent_id"], child["name"]) == (subagent.id, "scout")
    assert child["parent_agent_id"] == session.agent.id
    for each, calls, tokens in ((root, 3, 33), (child, 1, 33)):
        assert (each["turns"], each["model_calls"], each["unknown_calls"]) == (1, calls, 0)
        assert each["usage"]["total_tokens"] == tokens
    assert shown["usage"]["total_tokens"] == session.usage.total_tokens == 66
    assert [model["calls"] for model in shown["models"]] == [4]
    (call,) = place.extension(f"{session_id}/usage/calls", agent_id=subagent.id)["data"]
    assert (call["agent_id"], call["usage"]["total_tokens"]) == (subagent.id, 33)


def test_the_context_of_a_subagent_is_its_own(place: Place) -> None:
    session_id = place.create("ask Look.")
    session = until_status(place.client, session_id, "idle")
    (subagent,) = place.subagents(session_id)
    root = place.extension(f"{session_id}/context")
    assert root["agent_id"] == session.agent.id
    assert {"create_subagent", "wait_for_subagents"} <= set(root["functions"])
    child = place.extension(f"{session_id}/context", agent_id=subagent.id)
    assert (child["agent_id"], child["functions"]) == (subagent.id, [])
    assert [(each["role"], each["text"]) for each in child["entries"]] == [
        *(("user", "Look."), ("assistant", "I look."), ("assistant", "I was told: Look.")),
    ]
    assert subagent.id in child["instructions"]
    unknown = place.raw.get(
        f"{place.server.url}/perdure/v1/sessions/{session_id}/context", params={"agent_id": "sub_unknown"}
    )
    assert unknown.status_code == 404


def test_functions_are_not_called_like_the_calls_of_coordination(client: OpenAI) -> None:
    agents, sessions = client.beta.agents, client.beta.agents.sessions
    tools: Any = [
        {"type": "function", "name": name, "description": "", "parameters": {"type": "object"}}
        for name in ("look", "create_subagent")
    ]
    on, off = {"enabled": True}, {"enabled": False}
    known = agents.create(model="echo", tools=tools)
    busy = agents.create(model="echo", multi_agent=on)
    session = sessions.create(agent={"model": "echo", "multi_agent": on}, environment=NONE, input="Hello.")
    attempts: list[tuple[str, Any]] = [
        ("tools[1].name", lambda: agents.create(model="echo", tools=tools, multi_agent=on)),
        ("tools[1].name", lambda: agents.update(busy.id, tools=tools)),
        ("multi_agent", lambda: agents.update(known.id, multi_agent=on)),
        ("agent.tools[1].name", lambda: sessions.update(session.id, agent={"tools": tools})),
        (
            "agent.tools[1].name",
            lambda: sessions.create(
                agent={"model": "echo", "tools": tools, "multi_agent": on}, environment=NONE, input="Hello."
            ),
        ),
        (
            "agent.tools[1].name",
            lambda: sessions.create(
                agent_id=busy.id, agent={"tools": tools}, environment=NONE, input="Hello."
            ),
        ),
        (
            "agent.multi_agent",
            lambda: sessions.create(
                agent_id=known.id, agent={"multi_agent": on}, environment=NONE, input="Hello."
            ),
        ),
    ]
    for param, attempt in attempts:
        with pytest.raises(openai.BadRequestError) as refused:
            attempt()
        assert refused.value.param == param
        assert "create_subagent" in refused.value.message
        assert "Rename" in refused.value.message
    # Without subagents, the names are free.
    agents.update(busy.id, tools=tools, multi_agent=off)
    sessions.create(agent_id=known.id, environment=NONE, input="Hello.")


def test_the_capabilities_say_that_subagents_are_there(raw: httpx2.Client) -> None:
    url = str(raw.base_url).replace("/v1", "/perdure/v1")
    feature = raw.get(f"{url}capabilities").raise_for_status().json()["features"]["multi_agent"]
    assert feature["active"] is True
    assert feature["note"]
