"""What arrives while a summary is written, and what becomes of it when the server dies there."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.providers.answers import Call, Text, answer

from .conftest import Desk, Desks
from .office import DEADLINE, NOTE

pytestmark = pytest.mark.slow

LONG = "The parcel of order {number} was opened, weighed and closed again by hand. " * 60
"""About 1,100 tokens."""
ASYNC = {"compaction": {"async": True}}


def message(text: str) -> Any:
    part = {"type": "input_text", "text": text}
    said = {"type": "message", "role": "user", "content": [part]}
    return {"type": "agent.session.input.message", "input": [said]}


def until(desk: Desk, session_id: str, accept: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + DEADLINE
    while not accept(session := desk.sessions.retrieve(session_id)):
        assert time.monotonic() < deadline, session.status
        time.sleep(0.01)
    return session


def fill(desk: Desk, turns: int, **agent: Any) -> str:
    """A session with so many long turns; five of them nearly fill the window."""
    session_id = desk.open(LONG.format(number="A-1000"), agent=agent)
    for turn in range(1, turns):
        desk.say(session_id, LONG.format(number=f"A-{1000 + turn}"))
    return session_id


def hold(desk: Desk) -> None:
    async def make() -> asyncio.Event:
        return asyncio.Event()

    desk.office.held = desk.office.run(make())
    desk.office.asked.clear()


def users(desk: Desk, session_id: str) -> list[str]:
    items = desk.items(session_id)
    return [item.content[0].text for item in items if item.type == "message" and item.role == "user"]


def test_a_message_that_arrives_during_a_compaction_follows_it(desks: Desks) -> None:
    desk = desks()
    session_id = fill(desk, 5)
    hold(desk)
    desk.sessions.events.create(session_id, events=[message(LONG.format(number="A-2000"))])
    assert desk.office.asked.wait(DEADLINE)
    desk.sessions.events.create(session_id, events=[message("And is A-2001 ready?")])
    desk.office.release()
    until(desk, session_id, lambda session: session.status == "idle")
    assert users(desk, session_id)[-2:] == [LONG.format(number="A-2000"), "And is A-2001 ready?"]
    assert "A-2001" not in desk.office.summaries[-1]
    assert "A-2000" not in desk.office.summaries[-1]
    compacted = [body for body in desk.office.requests if NOTE in body]
    assert "A-2000" in compacted[0]
    assert "A-2001" in compacted[-1]
    assert desk.office.provider.overflows == 0
    assert len(desk.context(session_id)["compactions"]) == 1


def test_a_cancel_interrupts_a_compaction(desks: Desks) -> None:
    desk = desks()
    session_id = fill(desk, 5)
    hold(desk)
    desk.sessions.events.create(session_id, events=[message(LONG.format(number="A-2000"))])
    assert desk.office.asked.wait(DEADLINE)
    desk.sessions.events.create(session_id, events=[{"type": "agent.session.input.cancel"}])
    until(desk, session_id, lambda session: session.status == "idle")
    newest = desk.sessions.turns.list(session_id, limit=1).data[0]
    assert newest.status == "cancelled"
    assert desk.context(session_id)["compactions"] == []
    desk.office.release()
    desk.office.held = None
    told = desk.say(session_id, "Where were we?")
    assert told.turn.status == "completed"
    (compaction,) = desk.context(session_id)["compactions"]
    assert compaction["method"] == "summary"
    note = next(body for body in desk.office.requests if NOTE in body)
    assert "(cancelled by the user)" in note or "A-2000" in note


def test_beside_a_turn_input_and_results_go_on_while_a_summary_is_written(desks: Desks) -> None:
    desk = desks()
    session_id = fill(desk, 4, **ASYNC)
    hold(desk)
    # This turn crosses the line where a summary begins; it ends without waiting for it.
    told = desk.say(session_id, LONG.format(number="A-3000"))
    assert told.turn.status == "completed"
    assert desk.office.asked.wait(DEADLINE)
    assert all(NOTE not in body for body in desk.office.requests)
    # Meanwhile a turn calls, gets its result and a message.
    desk.office.plans.append(answer(Call("lookup_order", {"order_id": "A-3001"})))
    desk.sessions.events.create(session_id, events=[message("Look up A-3001.")])
    waiting = until(desk, session_id, lambda session: session.status == "requires_action")
    (call,) = waiting.required_actions
    desk.office.plans.append(answer(Text("A-3001 is here.")))
    result = {
        "type": "agent.session.input.tool_result",
        "turn_id": call.turn_id,
        "call_id": call.call_id,
        "success": True,
        "output": '{"order_id": "A-3001", "total": "7.25"}',
    }
    desk.sessions.events.create(session_id, events=[result, message("And thanks.")])
    until(desk, session_id, lambda session: session.status == "idle")
    assert len(desk.office.summaries) == 1
    # The summary is done; the next turn sees it, and all that came since.
    desk.office.release()
    served = len(desk.office.requests)
    told = desk.say(session_id, "What did I ask last?")
    assert told.turn.status == "completed"
    body = desk.office.requests[served]
    if NOTE not in body:  # the provider's answer may come a moment after the turn began
        told = desk.say(session_id, "And before that?")
        body = desk.office.requests[-1]
    assert NOTE in body
    for said in ("Look up A-3001.", "And thanks.", "A-3001 is here.", "What did I ask last?"):
        assert said in json.dumps(json.loads(body)["input"]), said
    assert len(desk.office.summaries) == 1, "the summary that was written is the one that is used"
    (compaction,) = desk.context(session_id)["compactions"]
    assert compaction["method"] == "summary"
    assert desk.office.provider.overflows == 0


POINTS = [
    "compaction:before-call",
    "compaction:after-call",
    "record_compaction:before-commit",
    "record_compaction:after-commit",
    "record_compaction:after-announce",
]


@pytest.mark.parametrize("point", POINTS)
def test_a_server_that_is_killed_while_it_compacts_leaves_the_old_view_or_the_new(
    desks: Desks, point: str
) -> None:
    desk = desks(environ={"PERDURE_FAULT": point})
    session_id = fill(desk, 5)
    desk.sessions.events.create(session_id, events=[message(LONG.format(number="A-4000"))])
    assert desk.server.wait() == -9
    asked = len(desk.office.summaries)
    desk.server._environ.clear()
    desk.server.start()
    desk.client.base_url = desk.server.base_url  # type: ignore[assignment]
    until(desk, session_id, lambda session: session.status == "idle")
    newest = desk.sessions.turns.list(session_id, limit=1).data[0]
    assert newest.status == "completed"
    committed = point.endswith(("after-commit", "after-announce"))
    assert len(desk.office.summaries) == asked + (0 if committed else 1)
    (compaction,) = desk.context(session_id)["compactions"]
    assert compaction["number"] == 1
    assert users(desk, session_id)[-1] == LONG.format(number="A-4000")
    assert NOTE in desk.office.requests[-1]
    assert "A-4000" in desk.office.requests[-1]
    assert desk.say(session_id, "Thanks.").turn.status == "completed"
    assert desk.office.provider.overflows == 0
