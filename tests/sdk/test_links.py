"""Sessions that a call begins: one for each call, found again after a crash, and one handoff in a turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perdure import ActionRequired, Agent, CallPair, FunctionCall, HandoffNote, Sessions, ToolContext, handoff
from perdure.sdk import links
from perdure.sdk.journal import Journal
from perdure.sdk.session import Session

from .orders import msgspec_desk


async def owed_call(session: Session[Any]) -> FunctionCall:
    """What the session waits for, read by somebody who cannot answer it."""
    with pytest.raises(ActionRequired) as required:
        await session.sessions.attach(session.id, Agent(name="nobody", model="order-desk")).follow()
    (action,) = required.value.actions
    assert isinstance(action, FunctionCall)
    return action


class DeadProcess:
    """A process that began a call and was gone before its end."""

    def __init__(self, journal: Path, session: Session[Any], call: FunctionCall) -> None:
        self.pair = CallPair(session.id, call.turn_id, call.call_id)
        self.context = ToolContext[Any](self.pair, call.name, session.agent.name, False, None, session)
        self._journal = Journal.open(journal)
        self._journal.begin(self.pair, call.name, call.arguments)

    def die(self) -> None:
        self._journal.close()


async def begun_by(sessions: Sessions, call: FunctionCall) -> list[str]:
    listed = sessions.resource.list(metadata={links.FROM_CALL: call.call_id})
    return [session.id async for session in listed]


async def test_a_handoff_that_was_broken_off_goes_on_with_the_session_it_had_begun(
    sessions: Sessions, journal_path: Path
) -> None:
    billing = Agent(name="Billing specialist", model="order-desk")
    front = Agent(name="Front desk", model="order-desk", handoffs=[billing])
    session = sessions.start(front)
    await session.create("both desks")
    # Only one of the two functions exists, so the server answers the other call itself.
    call = await owed_call(session)
    process = DeadProcess(journal_path, session, call)
    record = await session.hand_over(front.handoffs[0], process.context, None, HandoffNote())
    process.die()

    result = await sessions.resume(session.id)
    assert result.agent is billing
    assert result.session_id == record.target.session_id
    assert await begun_by(sessions, call) == [record.target.session_id]


async def test_a_handoff_that_told_the_application_is_not_told_twice(
    sessions: Sessions, journal_path: Path
) -> None:
    told: list[str] = []
    billing = Agent(name="Billing specialist", model="order-desk")
    to_billing = handoff(billing, on_handoff=lambda context: told.append(context.call_id))
    session = sessions.start(Agent(name="Front desk", model="order-desk", handoffs=[to_billing]))
    await session.create("both desks")
    process = DeadProcess(journal_path, session, await owed_call(session))
    process.die()
    result = await sessions.resume(session.id)
    assert told == []
    assert result.handoffs == ()
    output = next(
        item
        for item in result.items
        if item.type == "function_call_output" and item.call_id == process.pair.call_id
    )
    assert str(output.error).startswith("[outcome_unknown] transfer_to_billing_specialist was started")


async def test_an_agent_as_a_tool_goes_on_in_the_session_of_its_call(
    sessions: Sessions, journal_path: Path
) -> None:
    desk = msgspec_desk()
    concierge = Agent(name="Concierge", model="order-desk", tools=[desk.support_tool])
    session = sessions.start(concierge)
    await session.create("What about A-1042?")
    call = await owed_call(session)
    process = DeadProcess(journal_path, session, call)
    first_try = await sessions.begin(
        desk.support,
        environment="none",
        metadata=links.backward("agent_tool", process.pair),
        key=links.creation_key("agent_tool", process.pair),
    ).create("Resolve A-1042. Include history: False.")
    process.die()

    result = await sessions.resume(session.id)
    assert result.final_output == "The specialist says: It is shipped."
    assert await begun_by(sessions, call) == [first_try]
    assert len(desk.looked_up) == 1


async def test_a_conversation_is_handed_over_once_in_a_turn(sessions: Sessions) -> None:
    desks = [Agent(name=f"{name} specialist", model="order-desk") for name in ("Billing", "Shipping")]
    session = sessions.start(Agent(name="Front desk", model="order-desk", handoffs=desks))
    result = await session.run("both desks")
    assert len(result.handoffs) == 1
    assert result.agent.name == result.handoffs[0].target.agent
    outputs = [item for item in await session.items() if item.type == "function_call_output"]
    errors = [item.error for item in outputs if item.error is not None]
    assert errors == ["The conversation has been handed over already, in this turn."]
    started = [each async for each in sessions.resource.list(metadata={links.FROM_SESSION: session.id})]
    assert [each.id for each in started] == [result.session_id]
