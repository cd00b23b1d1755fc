"""What all lists have in common: page bodies, cursors, bounds, order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from openai import OpenAI

from .conftest import make_client
from .inputs import cancel, message
from .sessions import create_idle, items, turns
from .watch import until_status


@pytest.fixture(scope="module")
def talk(server: Any) -> Iterator[Any]:
    """A session with several turns, one of which has several user items."""
    with make_client(server) as client:
        session = create_idle(client, "echo", "One.")
        for texts in (("Two.", "Three.", "Four."), ("Five.",), ("Six.",)):
            with client.beta.agents.sessions.stream(
                session.id,
                input=[{"role": "user", "content": [{"type": "input_text", "text": text}]} for text in texts],
            ) as stream:
                stream.until_done()
        yield session


@pytest.fixture(scope="module")
def crew(server: Any) -> Iterator[Any]:
    """A session with three subagents, the first of which has several turns, each with several items."""
    with make_client(server) as client:
        yield create_idle(client, "crew", "Do three rounds.", multi_agent={"enabled": True})


@pytest.fixture(
    params=[
        *("items", "turns", "turn items", "sessions", "agents"),
        *("subagents", "subagent items", "subagent turns", "subagent turn items"),
    ]
)
def listing(request: pytest.FixtureRequest, client: OpenAI, talk: Any, crew: Any) -> str:
    """Path of a list that has at least three entries and does not change during a test."""
    match request.param:
        case "items":
            return f"/agents/sessions/{talk.id}/items"
        case "turns":
            return f"/agents/sessions/{talk.id}/turns"
        case "turn items":
            return f"/agents/sessions/{talk.id}/turns/{turns(client, talk.id)[1].id}/items"
        case "sessions":
            agent = client.beta.agents.create(model="echo")
            for _ in range(3):
                made = client.beta.agents.sessions.create(
                    agent_id=agent.id, environment={"type": "none"}, input="Hello."
                )
                until_status(client, made.id, "idle")
            return f"/agents/sessions?agent_id={agent.id}"
        case "subagents":
            return f"/agents/sessions/{crew.id}/subagents"
        case "subagent items" | "subagent turns" | "subagent turn items":
            subagents = client.beta.agents.sessions.subagents
            first = next(iter(subagents.list(crew.id, order="asc"))).id
            below = f"/agents/sessions/{crew.id}/subagents/{first}"
            if request.param == "subagent turn items":
                turn = next(iter(subagents.turns.list(first, session_id=crew.id, order="asc")))
                return f"{below}/turns/{turn.id}/items"
            return f"{below}/{request.param.removeprefix('subagent ')}"
        case _:
            for _ in range(3):
                client.beta.agents.create(model="echo")
            return "/agents"


def page(raw: httpx2.Client, listing: str, **query: Any) -> dict[str, Any]:
    url = httpx2.URL(listing).copy_merge_params({key: str(value) for key, value in query.items()})
    response = raw.get(url)
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    assert set(body) == {"object", "data", "first_id", "last_id", "has_more"}
    assert body["object"] == "list"
    if body["data"]:
        assert body["first_id"] == body["data"][0]["id"]
    else:
        assert (body["first_id"], body["last_id"], body["has_more"]) == (None, None, False)
    return body


def walk(raw: httpx2.Client, listing: str, limit: int, order: str, cursor: str = "last_id") -> list[str]:
    """The ids of the whole list, page by page, going on from `last_id` or from the last entry."""
    seen: list[str] = []
    after: dict[str, str] = {}
    while True:
        body = page(raw, listing, limit=limit, order=order, **after)
        seen += [entry["id"] for entry in body["data"]]
        assert len(body["data"]) <= limit
        if not body["has_more"]:
            return seen
        assert len(body["data"]) == limit
        after = {"after": body["last_id"] if cursor == "last_id" else seen[-1]}


def test_ascending_and_descending_walks_are_mirrors_at_any_page_size(
    raw: httpx2.Client, listing: str
) -> None:
    forward = walk(raw, listing, 100, "asc")
    assert len(forward) >= 3
    assert len(set(forward)) == len(forward)
    for limit in (1, 2, 3) if len(forward) < 20 else (17, 50):
        for cursor in ("last_id", "item"):
            assert walk(raw, listing, limit, "asc", cursor) == forward
            assert walk(raw, listing, limit, "desc", cursor) == forward[::-1]


def test_the_newest_come_first_unless_asked_otherwise(raw: httpx2.Client, listing: str) -> None:
    newest_first = walk(raw, listing, 100, "desc")
    assert [entry["id"] for entry in page(raw, listing)["data"]] == newest_first[:20]
    assert page(raw, listing, order="asc")["first_id"] == newest_first[-1]


@pytest.mark.parametrize("limit", ["0", "101", "-1", "abc", "1.5", ""])
def test_a_bad_limit_is_refused(raw: httpx2.Client, listing: str, limit: str) -> None:
    response = raw.get(httpx2.URL(listing).copy_merge_params({"limit": limit}))
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert (error["code"], error["param"]) == ("invalid_request_error", "limit")


@pytest.mark.parametrize("limit", [1, 100])
def test_the_bounds_of_limit_are_allowed(raw: httpx2.Client, listing: str, limit: int) -> None:
    assert len(page(raw, listing, limit=limit)["data"]) <= limit


def test_an_unknown_order_is_refused(raw: httpx2.Client, listing: str) -> None:
    response = raw.get(httpx2.URL(listing).copy_merge_params({"order": "random"}))
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "order"


@pytest.mark.parametrize("after", ["unknown", "msg_000000000000000000000000", "%00", "a" * 600])
def test_an_unknown_cursor_is_refused_and_never_restarts_the_list(
    raw: httpx2.Client, listing: str, after: str
) -> None:
    response = raw.get(httpx2.URL(listing).copy_merge_params({"after": after}))
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert (error["code"], error["param"]) == ("invalid_request_error", "after")


def test_a_cursor_of_another_session_is_an_unknown_one(raw: httpx2.Client, client: OpenAI, talk: Any) -> None:
    other = create_idle(client)
    foreign_item, foreign_turn = items(client, other.id)[0].id, turns(client, other.id)[0].id
    for path, foreign in (("items", foreign_item), ("turns", foreign_turn)):
        response = raw.get(f"/agents/sessions/{talk.id}/{path}", params={"after": foreign})
        unknown = raw.get(f"/agents/sessions/{talk.id}/{path}", params={"after": foreign[::-1]})
        assert response.status_code == unknown.status_code == 400
        assert response.json()["error"]["param"] == "after"


def test_an_unknown_query_parameter_is_refused(raw: httpx2.Client, listing: str) -> None:
    response = raw.get(httpx2.URL(listing).copy_merge_params({"limt": "5"}))
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "limt"


def test_the_cursor_after_the_last_entry_gives_an_empty_page(raw: httpx2.Client, talk: Any) -> None:
    listing = f"/agents/sessions/{talk.id}/items"
    last = walk(raw, listing, 100, "asc")[-1]
    assert page(raw, listing, order="asc", after=last)["data"] == []


def test_items_of_a_turn_are_the_items_of_the_session_with_its_id(client: OpenAI, talk: Any) -> None:
    whole = items(client, talk.id)
    by_turn = []
    for turn in turns(client, talk.id):
        own = list(
            client.beta.agents.sessions.turns.items.list(turn.id, session_id=talk.id, order="asc", limit=2)
        )
        assert own == [item for item in whole if item.turn_id == turn.id]
        by_turn += own
    assert by_turn == whole


def test_the_order_of_items_is_the_order_of_the_conversation(client: OpenAI, talk: Any) -> None:
    texts = [item.content[0].text for item in items(client, talk.id)]
    assert texts[:2] == ["One.", "You said: One."]
    assert texts[2:5] == ["Two.", "Three.", "Four."]
    assert texts[6:] == ["Five.", "You said: Five.", "Six.", "You said: Six."]


def test_turns_come_in_the_order_of_their_creation(client: OpenAI, talk: Any) -> None:
    listed = turns(client, talk.id)
    assert len(listed) == 4
    assert [turn.created_at for turn in listed] == sorted(turn.created_at for turn in listed)
    for turn in listed:
        assert client.beta.agents.sessions.turns.retrieve(turn.id, session_id=talk.id) == turn


def test_fifty_items_of_the_same_moment_page_without_loss(client: OpenAI) -> None:
    session = create_idle(client, "echo", "First.")
    texts = [f"Message {number}." for number in range(50)]
    client.beta.agents.sessions.events.create(session.id, events=[message(*texts), cancel()])
    until_status(client, session.id, "idle")
    paged = list(client.beta.agents.sessions.items.list(session.id, limit=7, order="asc"))
    said = [item.content[0].text for item in paged if item.type == "message" and item.role == "user"]
    assert said == ["First.", *texts]
    assert len({item.id for item in paged}) == len(paged)


def test_lists_without_entries_have_null_ids(raw: httpx2.Client) -> None:
    assert page(raw, "/agents/sessions?agent_id=agt_unknown")["data"] == []


def test_a_walk_goes_on_behind_an_entry_that_was_deleted_meanwhile(
    client: OpenAI, raw: httpx2.Client
) -> None:
    agent = client.beta.agents.create(model="echo")
    made = []
    for _ in range(3):
        session = client.beta.agents.sessions.create(
            agent_id=agent.id, environment={"type": "none"}, input="Hello."
        )
        made.append(until_status(client, session.id, "idle").id)
    listing = f"/agents/sessions?agent_id={agent.id}"
    first = page(raw, listing, order="asc", limit=1)["last_id"]
    assert first == made[0]
    client.beta.agents.sessions.delete(first)
    assert [entry["id"] for entry in page(raw, listing, order="asc", after=first)["data"]] == made[1:]
    agents = [client.beta.agents.create(model="echo").id for _ in range(3)]
    client.beta.agents.delete(agents[0])
    assert [entry["id"] for entry in page(raw, "/agents", order="asc", after=agents[0])["data"]] == agents[1:]


@pytest.mark.parametrize(
    "query",
    [
        {f"metadata[k{n}]": "v" for n in range(17)},
        {f"metadata[{'k' * 65}]": "v"},
        {"metadata[]": "v"},
        {"metadata": "v"},
        {"metadata[k]": "v" * 513},
    ],
    ids=["too many pairs", "a long key", "no key", "no brackets", "a long value"],
)
def test_a_metadata_filter_out_of_bounds_is_refused(raw: httpx2.Client, query: dict[str, str]) -> None:
    response = raw.get("/agents/sessions", params=query)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"].startswith("metadata")
