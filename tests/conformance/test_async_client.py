"""The main paths once more with the asynchronous client."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from openai import AsyncOpenAI
from openai.lib.beta.agents import AgentTurnResultError
from pydantic import BaseModel

from .inputs import CLOCK, NONE, WEATHER, message, tool_result
from .watch import DEADLINE


class Reading(BaseModel):
    city: str
    degrees: int


async def create_idle(client: AsyncOpenAI, model: str, **agent: Any) -> Any:
    events = await client.beta.agents.sessions.create(
        agent={"model": model, **agent}, environment=NONE, input="Hello.", stream=True
    )
    async for event in events:
        last = event
    assert last.type == "agent.session.idle"
    return last.session


async def test_create_and_read_the_result(async_client: AsyncOpenAI) -> None:
    events = await async_client.beta.agents.sessions.create(
        agent={"model": "greeter"}, environment=NONE, input="Hello.", stream=True
    )
    result = await events.get_final_result()
    assert result.output_text == "Hello from the greeter."


async def test_structured_output(async_client: AsyncOpenAI) -> None:
    events = await async_client.beta.agents.sessions.create(
        agent={"model": "structured"},
        environment=NONE,
        input="The reading?",
        stream=True,
        output_type=Reading,
    )
    assert (await events.get_final_result()).output_parsed == Reading(city="Oslo", degrees=7)


async def test_asynchronous_and_plain_handlers_answer_calls(async_client: AsyncOpenAI) -> None:
    async def weather(arguments: dict[str, Any]) -> str:
        await asyncio.sleep(0)
        return "7 °C"

    events = await async_client.beta.agents.sessions.create(
        agent={"model": "parallel", "tools": [WEATHER, CLOCK]},
        environment=NONE,
        input="both",
        stream=True,
        tool_handlers={"weather": weather, "clock": lambda _: "noon"},
    )
    assert (await events.get_final_result()).output_text == "Both are in."


async def test_stream_twice_on_one_session(async_client: AsyncOpenAI) -> None:
    session = await create_idle(async_client, "weather", tools=[WEATHER])
    for text, answer in (("The weather?", "It is 7 °C."), ("Thanks.", "You said: Thanks.")):
        async with async_client.beta.agents.sessions.stream(
            session.id, input=text, tool_handlers={"weather": lambda _: "7 °C"}
        ) as stream:
            assert (await stream.get_final_result()).output_text == answer


async def test_a_failing_handler_fails_the_call(async_client: AsyncOpenAI) -> None:
    session = await create_idle(async_client, "weather", tools=[WEATHER])

    async def weather(arguments: dict[str, Any]) -> str:
        raise RuntimeError("out of order")

    async with async_client.beta.agents.sessions.stream(
        session.id, input="The weather?", tool_handlers={"weather": weather}
    ) as stream:
        assert (await stream.get_final_result()).output_text == "It failed: Tool handler failed."


async def test_a_failed_turn(async_client: AsyncOpenAI) -> None:
    session = await create_idle(async_client, "faulty")
    async with async_client.beta.agents.sessions.stream(session.id, input="Please fail.") as stream:
        with pytest.raises(AgentTurnResultError) as failure:
            await stream.get_final_result()
    assert failure.value.reason == "failed"


async def test_a_waiting_session_refuses_the_helper(async_client: AsyncOpenAI) -> None:
    events = await async_client.beta.agents.sessions.create(
        agent={"model": "weather", "tools": [WEATHER]}, environment=NONE, input="The weather?", stream=True
    )
    async for event in events:
        if event.type == "agent.session.requires_action":
            session = event.session
            break
    await events.close()
    with pytest.raises(ValueError, match="idle session"):
        async with async_client.beta.agents.sessions.stream(session.id, input="Hello?"):
            pass
    (call,) = session.required_actions
    stream = await async_client.beta.agents.sessions.events.stream(session.id)
    await async_client.beta.agents.sessions.events.create(session.id, events=[tool_result(call)])
    async for event in stream:
        if event.type == "agent.session.idle":
            break
    await stream.close()


async def test_lists_page_by_themselves(async_client: AsyncOpenAI) -> None:
    session = await create_idle(async_client, "echo")
    sessions = async_client.beta.agents.sessions
    walked = [item.id async for item in sessions.items.list(session.id, limit=1, order="asc")]
    whole = await sessions.items.list(session.id, order="desc")
    assert walked == [item.id for item in whole.data][::-1]
    turn = (await sessions.turns.list(session.id)).data[0]
    by_turn = [item.id async for item in sessions.turns.items.list(turn.id, session_id=session.id, limit=1)]
    assert by_turn == walked[::-1]


async def test_many_sessions_at_once_stay_apart(async_client: AsyncOpenAI) -> None:
    async def talk(number: int) -> str:
        session = await create_idle(async_client, "echo")
        async with async_client.beta.agents.sessions.stream(session.id, input=f"I am {number}.") as stream:
            return (await stream.get_final_result()).output_text

    async with asyncio.timeout(DEADLINE):
        said = await asyncio.gather(*(talk(number) for number in range(20)))
    assert said == [f"You said: I am {number}." for number in range(20)]


async def test_saved_agents_round_trip(async_client: AsyncOpenAI) -> None:
    agents = async_client.beta.agents
    agent = await agents.create(model="echo", name="helper")
    assert await agents.retrieve(agent.id) == agent
    assert (await agents.update(agent.id, name=None)).name is None
    assert (await agents.delete(agent.id)).deleted is True


async def test_concurrent_messages_are_all_applied_in_the_order_of_acceptance(
    async_client: AsyncOpenAI,
) -> None:
    session = await create_idle(async_client, "echo")
    events = async_client.beta.agents.sessions.events
    stream = await events.stream(session.id)
    texts = {f"Say {number}." for number in range(10)}
    await asyncio.gather(*(events.create(session.id, events=[message(text)]) for text in texts))
    said: list[str] = []
    answered: list[str] = []
    async with asyncio.timeout(DEADLINE):
        async for event in stream:
            if event.type == "agent.session.turn.item.added" and event.item.type == "message":
                if event.item.role == "user":
                    said.append(event.item.content[0].to_dict()["text"])
            elif event.type == "agent.session.turn.item.done" and event.item.type == "message":
                answered.append(event.item.content[0].to_dict()["text"])
            elif event.type == "agent.session.idle" and said:
                break
    await stream.close()
    assert sorted(said) == sorted(texts)
    assert answered[-1] == f"You said: {said[-1]}"
