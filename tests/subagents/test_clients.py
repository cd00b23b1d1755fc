"""The official helpers, lists and streams: they are about the root, and what is below it is below it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from tests.conformance.inputs import NONE
from tests.conformance.sessions import kinds
from tests.conformance.watch import Watcher, until

from .installation import Installation, Scene
from .lookup import LOOKUP


def never(arguments: Any) -> str:
    raise AssertionError(f"a handler ran for a subagent: {arguments}")


def test_a_handler_never_runs_for_a_subagent_and_runs_for_the_root(place: Installation) -> None:
    scene = place.begin("remember me", tools=[LOOKUP])
    sessions = place.sessions
    with sessions.stream(
        scene.id, input="ask one: Please look up A-1042.", tool_handlers={"lookup_order": never}
    ) as stream:
        stream.get_final_result()
    (call,) = [item for item in scene.items_of("one") if item.type == "function_call"]
    assert (call.name, call.status) == ("lookup_order", "failed")
    heard: list[Any] = []

    def lookup(arguments: Any) -> str:
        heard.append(arguments)
        return "packed"

    with sessions.stream(
        scene.id,
        input="ask two: Please look up A-1042; and look up",
        tool_handlers={"lookup_order": lookup},
    ) as stream:
        assert stream.get_final_result().output_text == "packed"
    assert heard == [{"order_id": "A-1042"}]
    assert [item.status for item in scene.items_of("two") if item.type == "function_call"] == ["failed"]
    assert [item.type for item in scene.items].count("function_call") == 1


async def test_the_helpers_finish_with_the_turn_of_the_root(place: Installation) -> None:
    gate = place.gate()
    async with place.async_client() as client:
        sessions = client.beta.agents.sessions
        agent: Any = {"model": "crew", "multi_agent": {"enabled": True}}
        async with await sessions.create(
            agent=agent, environment=NONE, input=f"create one: {gate.text}", stream=True
        ) as events:
            seen = [event async for event in events]
        # The subagent is still at work when the stream of the first turn has come to its end.
        assert seen[-1].type in ("agent.session.idle", "agent.session.turn.completed")
        session_id = seen[0].session.id
        scene = Scene(place, session_id)
        scene.until_writing("one")

        async with sessions.stream(session_id, input="wait for one") as stream:
            # The turn of the subagent ends first; the helper goes on to the end of the root's.
            reading = asyncio.ensure_future(stream.get_final_result())
            await asyncio.to_thread(until, lambda: scene.calls("wait"), ["in_progress"].__eq__)
            assert not reading.done()
            gate.release()
            result = await reading
        assert '"timed_out":false' in result.output_text
        assert [turn.status for turn in scene.turns] == ["completed", "completed"]


def test_a_reader_who_comes_while_a_subagent_writes_sees_nothing_of_it(place: Installation) -> None:
    gate = place.gate()
    scene = Scene(place, place.create(f"ask one: {gate.text}"))
    until(lambda: scene.calls("wait"), ["in_progress"].__eq__)
    scene.until_writing("one")
    with Watcher(place.client, scene.id) as watcher:
        gate.release()
        watcher.wait("agent.session.idle")
    own = {item.id for item in scene.items_of("one")}
    told = [event.to_dict() for event in watcher.events]
    assert not own & {event["item"]["id"] for event in told if "item" in event}
    assert not own & {event["item_id"] for event in told if "item_id" in event}
    assert {event["turn"]["subagent_id"] for event in told if "turn" in event} == {None}
    assert "Before, " not in "".join(event.get("delta", "") for event in told)


def test_lists_of_subagents_and_their_work_page_both_ways(place: Installation) -> None:
    scene = place.begin("create one: Look.")
    for number in range(4):
        scene.until_turns("one", *["completed"] * (number + 1))
        scene.say(f"tell one: Look {number}.")
    scene.until_turns("one", *["completed"] * 5)
    for name in ("two", "three", "four", "five"):
        scene.say(f"ask {name}: Look.")
    below = place.sessions.subagents
    one = scene.subagents["one"].id
    (turn, *_) = scene.turns_of("one")
    lists = [
        lambda **page: below.list(scene.id, **page),
        lambda **page: below.turns.list(one, session_id=scene.id, **page),
        lambda **page: below.items.list(one, session_id=scene.id, **page),
        lambda **page: below.turns.items.list(turn.id, session_id=scene.id, subagent_id=one, **page),
    ]
    for read, count in zip(lists, (5, 5, 10, 2), strict=True):
        up = [each.id for each in read(order="asc", limit=100)]
        assert len(up) == len(set(up)) == count
        assert [each.id for each in read(order="desc", limit=100)] == up[::-1]
        assert [each.id for each in read()] == up[::-1]
        for limit in (1, 2, 3):
            assert [each.id for each in read(order="asc", limit=limit)] == up
            assert [each.id for each in read(order="desc", limit=limit)] == up[::-1]
        page = read(order="asc", limit=2, after=up[0])
        assert [each.id for each in page.data] == up[1:3]
        assert page.has_more == (count > 3)
    items = below.items.list(one, session_id=scene.id, order="asc", limit=100)
    assert kinds(list(items))[:4] == ["user", "assistant", "agent_message", "assistant"]


def test_a_turn_of_a_subagent_is_found_by_its_id_and_listed_nowhere_above(place: Installation) -> None:
    scene = place.begin("ask one: Look.")
    (child,) = scene.turns_of("one")
    assert place.sessions.turns.retrieve(child.id, session_id=scene.id) == child
    assert child.id not in {turn.id for turn in scene.turns}
    assert child.id not in {item.turn_id for item in scene.items}


def test_many_sessions_with_subagents_do_not_mix(place: Installation) -> None:
    scenes = [Scene(place, place.create(f"ask one: Order {number}.")) for number in range(6)]
    for number, scene in enumerate(scenes):
        scene.until_idle()
        assert scene.reports() == [("one", f"Done: Order {number}.")]
    with contextlib.ExitStack() as stack:
        watchers = [stack.enter_context(Watcher(place.client, scene.id)) for scene in scenes]
        for number, scene in enumerate(scenes):
            place.say(scene.id, f"ask two: Parcel {number}.")
        for watcher in watchers:
            watcher.wait("agent.session.idle", after=1)
    for number, scene in enumerate(scenes):
        scene.until_idle()
        assert scene.reports_of("two") == [f"Done: Parcel {number}."]
