"""One schema contract in four places, with two schema libraries, on a server and embedded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from perdure import Agent, HandedOff, HandoffRecord, Sessions
from perdure.sdk import links

from .orders import DESKS, Desk


@pytest.fixture(params=sorted(DESKS))
def desk(request: pytest.FixtureRequest) -> Desk:
    return DESKS[request.param]()


def fields(value: Any) -> dict[str, Any]:
    return (
        value if isinstance(value, dict) else {name: getattr(value, name) for name in value.__struct_fields__}
    )


async def test_a_tool_gets_the_validated_value_and_the_answer_is_typed(
    anywhere: Sessions, desk: Desk
) -> None:
    result = await anywhere.start(desk.support).run("Look up A-1042.")
    # The model sent null for the history; the author's default is what arrives.
    assert [fields(order) for order in desk.looked_up] == [{"order_id": "A-1042", "include_history": False}]
    assert fields(result.final_output) == {"order_id": "A-1042", "message": "It is shipped."}
    assert type(desk.looked_up[0]).__name__ in ("dict", "LookupOrder")
    assert result.agent is desk.support
    assert [item.type for item in result.items] == [
        "message",
        "message",
        "function_call",
        "function_call_output",
        "message",
    ]


async def test_an_agent_as_a_tool_runs_a_session_of_its_own(anywhere: Sessions, desk: Desk) -> None:
    concierge = Agent(name="Concierge", model="order-desk", tools=[desk.support_tool])
    result = await anywhere.start(concierge).run("What about A-1042?")
    assert result.final_output == "The specialist says: It is shipped."
    call = next(item for item in result.items if item.type == "function_call")
    linked = [session async for session in anywhere.resource.list(metadata={links.FROM_CALL: call.call_id})]
    assert [session.metadata[links.FROM_SESSION] for session in linked] == [result.session_id]
    assert linked[0].metadata[links.FROM_TURN] == result.turn_id
    items = await anywhere.attach(linked[0].id, desk.support).items()
    assert items[0].type == "message"
    assert items[0].content[0].type == "input_text"
    assert items[0].content[0].text == "Resolve A-1042. Include history: False."


async def test_a_handoff_goes_on_in_a_session_that_begins_with_the_record(
    anywhere: Sessions, desk: Desk
) -> None:
    front = Agent(name="Front desk", model="order-desk", handoffs=[desk.to_billing])
    session = anywhere.start(front)
    told: list[HandoffRecord] = []
    async with session.stream("The invoice is wrong.") as events:
        async for event in events:
            if isinstance(event, HandedOff):
                told.append(event.record)
        result = await events.result()

    assert desk.escalations == [("Wrong sum.", "normal")]
    assert result.agent is desk.billing
    assert result.final_output.startswith("Billing here.")
    assert [*result.handoffs] == told
    (record,) = told
    context = desk.contexts[0]
    assert (record.source.session_id, record.source.turn_id) == (session.id, context.turn_id)
    assert record.source.call_id == context.call_id
    assert record.target.session_id == result.session_id == result.session.id != session.id
    assert record.intent == "Wrong sum."
    assert record.details == {"reason": "Wrong sum.", "priority": "normal"}

    # Both sessions name each other and the call.
    source, target = await session.retrieve(), await result.session.retrieve()
    assert source.metadata[links.TO_SESSION] == target.id
    assert target.metadata[links.FROM_SESSION] == source.id
    for metadata, turn, call in (
        (source.metadata, links.TO_TURN, links.TO_CALL),
        (target.metadata, links.FROM_TURN, links.FROM_CALL),
    ):
        assert (metadata[turn], metadata[call]) == (context.turn_id, context.call_id)

    # The call is answered with the record, and the record is what the target was told.
    output = next(item for item in await session.items() if item.type == "function_call_output")
    assert isinstance(output.output, str)
    assert HandoffRecord.from_json(json.loads(output.output)) == record
    assert '"call_id":"' + context.call_id in result.final_output
    assert (await session.retrieve()).status == "idle"


async def test_the_conversation_goes_on_with_the_target(anywhere: Sessions, desk: Desk) -> None:
    front = Agent(name="Front desk", model="order-desk", handoffs=[desk.to_billing])
    first = await anywhere.start(front).run("The invoice is wrong.")
    second = await first.session.run("Thank you.")
    assert second.session_id == first.session_id
    assert second.final_output == "You said: Thank you."


async def test_a_session_that_was_handed_over_resumes_with_the_target(anywhere: Sessions, desk: Desk) -> None:
    front = Agent(name="Front desk", model="order-desk", handoffs=[desk.to_billing])
    session = anywhere.start(front)
    result = await session.run("The invoice is wrong.")
    again = await anywhere.resume(session.id)
    assert (again.session_id, again.final_output) == (result.session_id, result.final_output)
    assert again.handoffs == result.handoffs
    assert len(desk.escalations) == 1
