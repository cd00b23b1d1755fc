"""What tools write into a session's ledger, what of it the model is told, and what a handoff carries on."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import Agent, NoLedger, Sessions, ToolContext, ToolError, handoff, tool
from perdure.sdk.ledger import Ledger, Pinned

from .test_runs import NAME, caller


class OrderLedger(Ledger):
    order_id: Pinned[str]
    status: str = "new"


def shipping(**options: Any) -> Any:
    @tool(parameters=NAME, name="work", **options)
    def ship(given: Any, context: ToolContext[OrderLedger]) -> str:
        """Ship."""
        assert context.ledger.value.order_id == "A-1042"
        return context.ledger.update(status="shipped").status

    return ship


async def test_a_tool_changes_the_ledger_together_with_its_result(sessions: Sessions) -> None:
    session = sessions.start(caller(shipping()), ledger=OrderLedger(order_id="A-1042"))
    result = await session.run("work")
    assert result.final_output == "It is shipped."
    record = await session.ledger()
    assert record is not None
    assert record.value == {"order_id": "A-1042", "status": "shipped"}
    assert (record.session_id, record.last_turn_id, record.awaiting) == (session.id, result.turn_id, None)
    assert await session.reconcile() == []


async def test_a_failed_call_changes_nothing(sessions: Sessions) -> None:
    @tool(parameters=NAME, name="work")
    def ship(given: Any, context: ToolContext[OrderLedger]) -> str:
        """Ship."""
        context.ledger.update(status="shipped")
        raise ToolError("The carrier is closed.")

    session = sessions.start(caller(ship), ledger=OrderLedger(order_id="A-1042"))
    await session.run("work")
    record = await session.ledger()
    assert record is not None
    assert record.value["status"] == "new"


async def test_another_process_finds_the_ledger_by_the_session(sessions: Sessions) -> None:
    session = sessions.start(caller(shipping()), ledger=OrderLedger(order_id="A-1042"))
    session_id = await session.create("work")
    again = sessions.attach(session_id, caller(shipping()), ledger_type=OrderLedger)
    assert (await again.follow()).final_output == "It is shipped."
    record = await again.ledger()
    assert record is not None
    assert record.value["status"] == "shipped"


async def test_a_session_without_a_ledger_says_so(sessions: Sessions) -> None:
    with pytest.raises(NoLedger, match="start it with ledger="):
        await sessions.start(caller(shipping(on_failure="raise"))).run("work")


async def test_a_handoff_carries_the_ledger_on(sessions: Sessions) -> None:
    @tool(parameters={**NAME, "properties": {"reason": {"type": "string"}}, "required": ["reason"]})
    def refund(given: Any, context: ToolContext[OrderLedger]) -> str:
        """Refund."""
        return context.ledger.update(status="refunded").order_id

    billing = Agent(name="Billing specialist", model="order-desk", tools=[refund])
    front = Agent(
        name="Front desk",
        model="order-desk",
        handoffs=[handoff(billing, input_type={**NAME, "properties": REASON, "required": ["reason"]})],
    )
    session = sessions.start(front, ledger=OrderLedger(order_id="A-1042"))
    result = await session.run("The invoice is wrong.")
    assert result.final_output == "Billing has refunded it: A-1042"
    assert result.handoffs[0].ids == {"order_id": "A-1042", "status": "new"}
    before, after = await session.ledger(), await result.session.ledger()
    assert before is not None
    assert after is not None
    assert (before.value["status"], after.value["status"]) == ("new", "refunded")


REASON = {"reason": {"type": "string"}, "priority": {"type": ["string", "null"]}}
