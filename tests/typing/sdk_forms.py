"""What type checkers infer for tools, agents and handoffs of each form. Checked, and never run."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, TypedDict, assert_type

import attrs
import marshmallow as mm
import msgspec
import pydantic

from perdure import (
    Agent,
    BlockingSession,
    Handoff,
    MainAgent,
    RunResult,
    Session,
    Sessions,
    StandardSchema,
    Subagent,
    Tool,
    ToolContext,
    TreeNode,
    from_marshmallow,
    handoff,
    tool,
)
from perdure.sdk.ledger import Ledger


class Model(pydantic.BaseModel):
    order_id: str


@dataclasses.dataclass
class Data:
    order_id: str


class Row(TypedDict):
    order_id: str


class Struct(msgspec.Struct):
    order_id: str


@attrs.define
class Attrs:
    order_id: str


class Marsh(mm.Schema):
    order_id = mm.fields.Str()


class OrderLedger(Ledger):
    order_id: str


RAW: dict[str, Any] = {"type": "object", "properties": {}}


@tool
def by_signature(order_id: str, count: int = 1) -> int:
    """Ship."""
    return count


@tool(name="ship", timeout=3)
async def with_options(order_id: str) -> str:
    """Ship."""
    return order_id


@tool(parameters=Struct)
def of_struct(order: Struct) -> str:
    """Ship."""
    return order.order_id


@tool(parameters=Data, idempotent=True)
async def of_data(order: Data, context: ToolContext[OrderLedger]) -> str:
    """Ship."""
    assert_type(context.ledger.value, OrderLedger)
    return order.order_id


@tool(parameters=from_marshmallow(Marsh, Row))
def of_marshmallow(order: Row) -> str:
    """Ship."""
    return order["order_id"]


@tool(parameters=RAW)
def of_json(order: dict[str, Any]) -> str:
    """Ship."""
    return str(order["order_id"])


def described(order: Any) -> str:
    return str(order)


def tools(standard: StandardSchema[Any, Attrs]) -> None:
    assert_type(by_signature("A-1042", count=2), int)
    assert_type(of_struct, Tool[[Struct], str])
    assert_type(of_struct(Struct("A-1042")), str)
    assert_type(of_marshmallow, Tool[[Row], str])
    assert_type(of_json({}), str)
    inferred = tool(lambda order: order.order_id, parameters=Attrs, name="ship", description="Ships.")
    assert_type(inferred, Tool[[Attrs], str])
    assert_type(tool(lambda order: order, parameters=standard, name="ship"), Tool[[Attrs], Attrs])
    assert_type(tool(lambda order: order.order_id, parameters=Model, name="ship"), Tool[[Model], str])
    assert_type(tool(described, parameters=Marsh, name="ship").name, str)
    assert_type(with_options.name + of_data.name, str)


def agents(standard: StandardSchema[Any, Data]) -> None:
    plain = Agent(model="m", tools=[by_signature, of_struct, with_options, {"type": "web_search"}])
    assert_type(plain, Agent[str])
    assert_type(Agent(model="m", output_type=Model), Agent[Model])
    assert_type(Agent(model="m", output_type=Data), Agent[Data])
    assert_type(Agent(model="m", output_type=Struct), Agent[Struct])
    assert_type(Agent(model="m", output_type=Attrs), Agent[Attrs])
    assert_type(Agent(model="m", output_type=Row), Agent[Row])
    assert_type(Agent(model="m", output_type=standard), Agent[Data])
    assert_type(Agent(model="m", output_type=Marsh), Agent[Any])
    assert_type(Agent(model="m", output_type=RAW), Agent[Any])
    assert_type(Agent(model="m", output_type=Model, handoffs=[plain]), Agent[Model | str])


async def runs(sessions: Sessions) -> None:
    agent = Agent(model="m", output_type=Struct)
    session = sessions.start(agent, ledger=OrderLedger(order_id="A-1042"))
    assert_type(session, Session[Struct])
    result = await session.run("Look it up.")
    assert_type(result, RunResult[Struct])
    assert_type(result.final_output, Struct)
    assert_type((await sessions.resume("s", agent)).final_output, Struct)
    assert_type((await sessions.resume("s")).final_output, Any)
    async with session.stream("Again.") as events:
        async for event in events:
            if event.type == "perdure.tool.finished":
                assert_type(event.is_accepted, bool)
            if event.type == "agent.session.turn.output_text.delta":
                assert_type(event.delta, str)
        assert_type((await events.result()).final_output, Struct)
    assert_type((await sessions.start(Agent(model="m")).run("Hi.")).final_output, str)


async def subagents(session: Session[str], blocking: BlockingSession[str]) -> None:
    async for subagent in session.subagents():
        assert_type(subagent, Subagent)
        assert_type(subagent.status, Literal["active", "closed"])
    async for node in session.tree():
        assert_type(node.agent, MainAgent | Subagent)
        assert_type(node.parent, TreeNode | None)
    for each in blocking.subagents():
        assert_type(each.agent, Subagent)
        assert_type(each.last_text(), str)
    async with session.stream("Hi.") as events:
        async for event in events:
            if event.type == "perdure.agent_message":
                assert_type(event.sender, Subagent | None)
            if event.type == "perdure.subagent.changed":
                assert_type(event.subagent, Subagent)


def handoffs(standard: StandardSchema[Any, Data]) -> None:
    billing = Agent(model="m", output_type=Row)

    def told(context: ToolContext, details: Struct) -> None: ...
    async def told_later(context: ToolContext, details: Data) -> None: ...
    def told_alone(context: ToolContext) -> None: ...

    assert_type(handoff(billing), Handoff[Row])
    assert_type(handoff(billing, on_handoff=told_alone), Handoff[Row])
    assert_type(handoff(billing, input_type=Struct, on_handoff=told), Handoff[Row])
    assert_type(handoff(billing, input_type=standard, on_handoff=told_later), Handoff[Row])
    handoff(billing, input_type=Model, on_handoff=lambda context, details: print(details.order_id))
    handoff(billing, input_type=RAW, on_handoff=lambda context, details: print(details["order_id"]))


def agent_tools() -> None:
    agent = Agent(model="m")
    agent.as_tool(parameters=Struct, input_builder=lambda order: f"Resolve {order.order_id}.")
    agent.as_tool(input_builder=None)  # type: ignore[call-overload]  # pyright: ignore
    Agent(model="m", tools=[agent.as_tool(name="resolve")])


def refused(standard: StandardSchema[Any, Data]) -> None:
    def wrong(order: int) -> None: ...
    def told_wrong(context: ToolContext, details: int) -> None: ...

    tool(wrong, parameters=Struct)  # type: ignore[arg-type]  # pyright: ignore
    tool(parameters=Struct)(wrong)  # type: ignore[arg-type]  # pyright: ignore
    tool(wrong, output_schema=standard)  # type: ignore[call-overload]  # pyright: ignore
    handoff(Agent(model="m"), input_type=Struct, on_handoff=told_wrong)  # type: ignore[arg-type]  # pyright: ignore
