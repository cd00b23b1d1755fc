from __future__ import annotations

import uuid
from typing import Any

from openai import OpenAI

from .inputs import NONE
from .sessions import create


def make(client: OpenAI, **fields: Any) -> str:
    return client.beta.agents.sessions.create(
        agent={"model": "echo"}, environment=NONE, input="Hello.", **fields
    ).id


def test_the_agent_filter_shows_sessions_of_that_root_agent_newest_first(client: OpenAI) -> None:
    agent = client.beta.agents.create(model="echo")
    other = client.beta.agents.create(model="echo")
    mine = [
        client.beta.agents.sessions.create(agent_id=agent.id, environment=NONE, input="Hello.").id
        for _ in range(3)
    ]
    client.beta.agents.sessions.create(agent_id=other.id, environment=NONE, input="Hello.")
    assert [session.id for session in client.beta.agents.sessions.list(agent_id=agent.id)] == mine[::-1]
    assert [
        session.id for session in client.beta.agents.sessions.list(agent_id=agent.id, order="asc")
    ] == mine


def test_the_agent_filter_takes_inline_agents_too(client: OpenAI) -> None:
    session = create(client, "echo")
    assert [found.id for found in client.beta.agents.sessions.list(agent_id=session.agent.id)] == [session.id]


def test_an_unknown_agent_has_no_sessions(client: OpenAI) -> None:
    assert client.beta.agents.sessions.list(agent_id="agt_unknown").data == []


def test_all_pairs_of_the_metadata_filter_must_match(client: OpenAI) -> None:
    run = uuid.uuid4().hex
    both = make(client, metadata={"run": run, "team": "blue"})
    one = make(client, metadata={"run": run})
    make(client, metadata={"run": run + "x", "team": "blue"})
    assert [found.id for found in client.beta.agents.sessions.list(metadata={"run": run})] == [one, both]
    matching = client.beta.agents.sessions.list(metadata={"run": run, "team": "blue"})
    assert [found.id for found in matching] == [both]
    assert client.beta.agents.sessions.list(metadata={"run": run, "team": "BLUE"}).data == []


def test_the_metadata_filter_follows_updates(client: OpenAI) -> None:
    run = uuid.uuid4().hex
    session = make(client, metadata={"run": run})
    client.beta.agents.sessions.update(session, metadata={"run": run, "team": "red"})
    assert [s.id for s in client.beta.agents.sessions.list(metadata={"run": run, "team": "red"})] == [session]
    client.beta.agents.sessions.update(session, metadata=None)
    assert client.beta.agents.sessions.list(metadata={"run": run}).data == []


def test_filter_values_may_hold_any_text(client: OpenAI) -> None:
    run = uuid.uuid4().hex
    pair = {f"key [{run}] & = %": "välue, with / ? # + 世界"}
    session = make(client, metadata=pair)
    assert [found.id for found in client.beta.agents.sessions.list(metadata=pair)] == [session]


def test_filters_hold_across_pages(client: OpenAI) -> None:
    run = uuid.uuid4().hex
    made = [make(client, metadata={"run": run}) for _ in range(5)]
    for limit in (1, 2, 5):
        newest_first = client.beta.agents.sessions.list(metadata={"run": run}, limit=limit)
        assert [session.id for session in newest_first] == made[::-1]
        oldest_first = client.beta.agents.sessions.list(metadata={"run": run}, limit=limit, order="asc")
        assert [session.id for session in oldest_first] == made


def test_listed_sessions_are_the_retrieved_ones(client: OpenAI) -> None:
    run = uuid.uuid4().hex
    session = make(client, metadata={"run": run})
    with client.beta.agents.sessions.events.stream(session) as stream:
        for event in stream:
            if event.type == "agent.session.idle":
                break
    (listed,) = client.beta.agents.sessions.list(metadata={"run": run})
    assert listed == client.beta.agents.sessions.retrieve(session)
