"""Histories that their provider compacts itself: who is sent what it made, and what others are told."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import pytest
from tests.providers.answers import Call, Refusal, Text, answer
from tests.providers.chat import ChatProvider
from tests.providers.responses import ResponsesProvider

from .conftest import Desk, Desks
from .office import NOTE, WINDOW, Office
from .test_cost_of_summaries import ask, settled
from .test_while_compacting import ASYNC, LONG, message, until, users

pytestmark = pytest.mark.slow

NATIVE = {"compaction": "native"}
NATIVE_NOTE = "was compacted; this note adds to what is left of it"
OPENING = "I am the shop. Order A-1042 is in dispute."
PINS = {"perdure.pin.disputed_order": "A-1042", "perdure.pin.refund_policy": "no refund above 100"}
LONG_ANSWER = "The parcel was opened, weighed and closed again by hand. " * 12
NOTE_START = "[Note from the server."
FORGOTTEN = "could not be verified"


def provider_of(desk: Desk) -> ResponsesProvider:
    assert isinstance(desk.office.provider, ResponsesProvider)
    return desk.office.provider


def talk(desk: Desk, turns: int, session_id: str | None = None, **options: Any) -> str:
    """Short questions with long answers, every fourth with a call; thirty of them fill the window."""
    session_id = session_id or desk.open(OPENING, metadata=PINS, **options)
    for turn in range(turns):
        if turn % 4 == 3:
            desk.office.plans.append(answer(Call("lookup_order", {"order_id": f"B-{turn}"})))
        desk.office.plans.append(answer(Text(LONG_ANSWER)))
        told = desk.say(session_id, f"How is order B-{turn}?", lambda _, n=turn: f'{{"order_id": "B-{n}"}}')
        assert told.turn.status == "completed"
    return session_id


def compacted(desk: Desk) -> str:
    """A session that has been compacted once."""
    session_id = talk(desk, 20)
    while not compactions(desk, session_id):
        talk(desk, 1, session_id)
    return session_id


def items_of(body: str) -> list[Any]:
    entries = json.loads(body)["input"]
    assert isinstance(entries, list)
    return entries


def kinds_of(body: str) -> list[str]:
    return [entry["type"] for entry in items_of(body)]


def said_in(body: str) -> list[str]:
    said = [item for item in items_of(body) if item["type"] == "message" and item["role"] == "user"]
    return [item["content"][0]["text"] for item in said]


def first_compacted(desk: Desk) -> int:
    """The number of the first request with a compaction of the provider."""
    return next(i for i, body in enumerate(desk.office.requests) if "compaction" in kinds_of(body))


def compactions(desk: Desk, session_id: str) -> list[Any]:
    found = desk.context(session_id)["compactions"]
    assert isinstance(found, list)
    return found


def test_a_long_session_stays_below_the_window(desks: Desks) -> None:
    desk = desks(table=NATIVE)
    session_id = talk(desk, 130)
    office, provider = desk.office, provider_of(desk)
    assert provider.overflows == 0
    found = compactions(desk, session_id)
    methods = [each["method"] for each in reversed(found)]
    assert methods[:2] == ["native", "native"], "what was compacted is compacted again"
    # What the user said is kept each time, until it is worth a summary.
    assert "summary" in methods
    assert methods[methods.index("summary") + 1] == "native"
    assert methods.count("native") == len(provider.compactions), "one was made in vain"
    assert all(each["tokens"]["after"] < each["tokens"]["before"] for each in found)
    assert found[-1]["model"] == {"provider": "fake", "model": "fake"}
    for body in office.requests[first_compacted(desk) :]:
        assert "compaction" in kinds_of(body) or NOTE in body, "a compacted history came back"
        for name, value in PINS.items():
            assert f"{name.removeprefix('perdure.pin.')}: {value} (pinned by the application)" in body
    # The note that restates the rest follows what the provider made.
    body = office.requests[first_compacted(desk)]
    place = kinds_of(body).index("compaction")
    note = items_of(body)[place + 1]["content"][0]["text"]
    assert NATIVE_NOTE in note
    assert '- "How is order B-0?" (completed)' in note
    seen = desk.context(session_id)
    assert seen["tokens"]["total"] < seen["room"]["window"] == WINDOW
    assert len(users(desk, session_id)) == 131


def test_it_costs_what_it_costs_and_is_seen_by_nobody_else(desks: Desks) -> None:
    desk = desks(table=NATIVE)
    session_id = compacted(desk)
    (compaction,) = compactions(desk, session_id)
    assert compaction["method"] == "native"
    assert 'The user said: "How is order B-' in compaction["summary"]
    seen = desk.context(session_id)
    assert seen["entries"][0]["role"] == "server"
    assert "its own model alone" in seen["entries"][0]["text"]
    (asked,) = provider_of(desk).compactions
    opaque = next(i for i in items_of(desk.office.requests[-1]) if i["type"] == "compaction")
    listed = str(desk.items(session_id)) + json.dumps(seen)
    events = httpx2.get(
        f"{desk.server.url}/perdure/v1/sessions/{session_id}/events?limit=1000",
        headers={"Authorization": f"Bearer {desk.server.api_key}"},
    )
    assert events.status_code == 200, events.text
    for secret in (opaque["encrypted_content"], opaque["id"]):
        assert secret not in listed
        assert secret not in events.text
    calls = ask(desk, f"{session_id}/usage/calls?limit=100&order=asc")["data"]
    (beside,) = [call for call in calls if call["purpose"] == "compaction"]
    assert (beside["outcome"], beside["usage"]["output_tokens"]) == ("ok", 400)
    size = len(json.dumps(asked.body).encode()) // 4
    assert size * 0.9 < beside["usage"]["input_tokens"] < size * 1.1
    total = desk.sessions.retrieve(session_id).usage
    assert total.total_tokens == sum(call["usage"]["total_tokens"] for call in calls)


def test_a_new_process_sends_the_same(desks: Desks) -> None:
    desk = desks(table=NATIVE)
    session_id = compacted(desk)
    before = items_of(desk.office.requests[-1])
    desk.server.restart()
    desk.client.base_url = desk.server.base_url  # type: ignore[assignment]
    desk.say(session_id, "And now?")
    after = items_of(desk.office.requests[-1])
    assert after[: len(before)] == before


def test_another_model_is_told_in_words_and_the_first_one_reads_on(desks: Desks) -> None:
    desk = desks(table=NATIVE)
    session_id = compacted(desk)
    desk.sessions.update(session_id, agent={"model": "fake-other"})
    assert desk.say(session_id, "Who are you?").turn.status == "completed"
    body = desk.office.requests[-1]
    assert "compaction" not in kinds_of(body)
    assert NOTE in body
    assert NATIVE_NOTE not in body
    assert 'The user said: \\"How is order B-' in body
    assert "A-1042 (pinned by the application)" in body
    desk.sessions.update(session_id, agent={"model": "fake"})
    assert desk.say(session_id, "And you?").turn.status == "completed"
    assert "compaction" in kinds_of(desk.office.requests[-1])
    assert "Who are you?" in desk.office.requests[-1]


def test_another_protocol_is_told_in_words_and_goes_on_for_long(desks: Desks) -> None:
    with Office(ChatProvider(context_window=WINDOW)) as other:
        table = other.table().replace('"fake"', '"chat"').replace("fake*", "chat*")
        desk = desks(table=NATIVE, settings=table)
        session_id = compacted(desk)
        desk.sessions.update(session_id, agent={"model": "chat-1"})
        desk.say(session_id, "Who are you?")
        assert NOTE in other.requests[-1]
        assert "How is order B-0?" in other.requests[-1]
        for turn in range(60):
            other.plans.append(answer(Text(LONG_ANSWER)))
            assert desk.say(session_id, f"What of C-{turn}?").turn.status == "completed"
        assert other.summaries
        assert other.provider.overflows == 0
        assert other.provider.violations == []
        newest, *_, first = compactions(desk, session_id)
        assert (newest["method"], first["method"]) == ("summary", "native")


@pytest.mark.parametrize(
    "refusal",
    [
        Refusal(404, None, "Invalid URL (POST /v1/responses/compact)"),
        Refusal(500, "server_error", "Broken."),
        Refusal(200, body=b'{"object": "response.compaction", "output": []}'),
    ],
    ids=["not there", "broken", "empty"],
)
def test_a_failure_falls_back_to_a_summary(desks: Desks, refusal: Refusal) -> None:
    desk = desks(table=NATIVE)
    provider_of(desk).refusals.extend([refusal] * 20)
    session_id = talk(desk, 40)
    assert {each["method"] for each in compactions(desk, session_id)} == {"summary"}
    assert provider_of(desk).compactions
    assert desk.office.summaries
    assert provider_of(desk).overflows == 0


def test_when_the_summary_fails_too_the_history_is_cut_by_rule(desks: Desks) -> None:
    desk = desks(table=NATIVE)
    provider_of(desk).refusals.extend([Refusal(404)] * 20)
    desk.office.summarise = lambda _: Refusal(400, "invalid_request_error", "No.")
    session_id = talk(desk, 40)
    assert {each["method"] for each in compactions(desk, session_id)} == {"trim"}
    assert provider_of(desk).overflows == 0


def test_a_compaction_that_does_not_shrink_is_not_used(desks: Desks) -> None:
    desk = desks(table=NATIVE)
    provider_of(desk).compacted_bytes = 20_000
    session_id = talk(desk, 40)
    assert provider_of(desk).compactions
    assert {each["method"] for each in compactions(desk, session_id)} == {"summary"}
    assert provider_of(desk).overflows == 0


def test_what_the_user_said_at_length_is_summarised_at_once(desks: Desks) -> None:
    desk = desks(table=NATIVE)
    session_id = desk.open(LONG.format(number="A-1000"))
    for turn in range(7):
        desk.say(session_id, LONG.format(number=f"A-{1001 + turn}"))
    assert provider_of(desk).compactions == []
    assert {each["method"] for each in compactions(desk, session_id)} == {"summary"}


def test_a_provider_that_lost_its_keys_does_not_end_the_session(desks: Desks) -> None:
    desk = desks(table=NATIVE)
    session_id = compacted(desk)
    provider = provider_of(desk)
    provider.forget()
    told = desk.say(session_id, "Where were we?")
    assert told.turn.status == "completed"
    assert all(FORGOTTEN in said or "not found" in said for said in provider.violations)
    assert len(provider.violations) == 1
    provider.violations.clear()
    body = desk.office.requests[-1]
    assert 'The user said: \\"How is order B-' in body
    assert NATIVE_NOTE in body
    # It compacts again what it can read.
    talk(desk, 40, session_id)
    assert compactions(desk, session_id)[0]["method"] == "native"
    assert provider.overflows == 0


def hold(desk: Desk) -> None:
    async def make() -> asyncio.Event:
        return asyncio.Event()

    provider_of(desk).held = desk.office.run(make())


def release(desk: Desk) -> None:
    held = provider_of(desk).held
    assert held is not None
    desk.office.loop.call_soon_threadsafe(held.set)


def test_beside_the_turns_it_works_the_same(desks: Desks) -> None:
    desk = desks(table=NATIVE)
    hold(desk)
    session_id = desk.open(OPENING, metadata=PINS, agent=ASYNC)
    while not provider_of(desk).compactions:
        # It is begun a few turns before one would have to wait for it.
        talk(desk, 1, session_id)
    assert compactions(desk, session_id) == []
    assert all("compaction" not in kinds_of(body) for body in desk.office.requests)
    release(desk)
    settled(desk, session_id, lambda calls: any(call["purpose"] == "compaction" for call in calls))
    talk(desk, 40, session_id)
    assert {each["method"] for each in compactions(desk, session_id)} == {"native"}
    assert desk.office.summaries == []
    assert provider_of(desk).overflows == 0
    # Each request before was a turn's, and this one has what was said in all of them.
    number = first_compacted(desk)
    assert [text for text in said_in(desk.office.requests[number]) if not text.startswith(NOTE_START)] == (
        users(desk, session_id)[: number + 1]
    )


def test_a_cancel_interrupts_it(desks: Desks) -> None:
    desk = desks(table=NATIVE)
    hold(desk)
    session_id = desk.open(OPENING)
    while not provider_of(desk).compactions:
        desk.office.plans.append(answer(Text(LONG_ANSWER)))
        asked = len(desk.office.requests)
        desk.sessions.events.create(session_id, events=[message("How is my order?")])
        until(
            desk,
            session_id,
            lambda session, asked=asked: (
                bool(provider_of(desk).compactions)
                or (session.status == "idle" and len(desk.office.requests) > asked)
            ),
        )
    desk.sessions.events.create(session_id, events=[{"type": "agent.session.input.cancel"}])
    until(desk, session_id, lambda session: session.status == "idle")
    newest = desk.sessions.turns.list(session_id, limit=1).data[0]
    assert newest.status == "cancelled"
    assert compactions(desk, session_id) == []
    calls = ask(desk, f"{session_id}/usage/calls?limit=100&order=desc")["data"]
    assert calls[0]["outcome"] == "cancelled"
    assert calls[0]["purpose"] == "compaction"
    release(desk)
    assert desk.say(session_id, "Where were we?").turn.status == "completed"
    (compaction,) = compactions(desk, session_id)
    assert compaction["method"] == "native"


def test_a_ceiling_counts_it(desks: Desks) -> None:
    desk = desks(table=NATIVE)
    session_id = talk(desk, 20)
    made = ask(desk, f"{session_id}/usage")["model_calls"]
    # One call is reserved for the step itself: so many more fit until the window is full, and no other.
    key = "perdure.limit.model_calls_per_session"
    for turn in range(40):
        desk.sessions.update(session_id, metadata={**PINS, key: str(made + 1)})
        desk.office.plans.append(answer(Text(LONG_ANSWER)))
        desk.say(session_id, f"And C-{turn}?")
        made += 1
        if ask(desk, f"{session_id}/usage")["model_calls"] != made:
            break
        if any(each["method"] != "native" for each in compactions(desk, session_id)):
            break
    assert provider_of(desk).compactions == []
    assert {each["method"] for each in compactions(desk, session_id)} == {"trim"}
