"""What a new subscriber receives first: a snapshot of now, then everything from now on."""

from __future__ import annotations

from typing import Any

from openai import OpenAI

from .conftest import Gate
from .inputs import CLOCK, WEATHER, message, tool_result
from .sessions import create, create_idle, create_waiting, items, kinds, turns
from .watch import Watcher, until, until_status

TURN = "agent.session.turn."
NEVER_REPEATED = {
    "agent.session.created",
    f"{TURN}created",
    f"{TURN}in_progress",
    f"{TURN}completed",
    f"{TURN}failed",
    f"{TURN}cancelled",
}


def snapshot(client: OpenAI, session_id: str, last: str) -> list[Any]:
    """The first events of a new subscriber, up to the first of a type."""
    with Watcher(client, session_id) as watcher:
        watcher.wait(last)
        return watcher.events[: watcher.types.index(last) + 1]


def test_an_idle_session_says_so(client: OpenAI) -> None:
    session = create_idle(client)
    for _ in range(2):
        (event,) = snapshot(client, session.id, "agent.session.idle")
        assert event.session == session


def test_a_waiting_session_repeats_the_open_calls_and_what_it_requires(client: OpenAI) -> None:
    session = create_waiting(client, "parallel", "both", tools=[WEATHER, CLOCK])
    events = snapshot(client, session.id, "agent.session.requires_action")
    assert NEVER_REPEATED.isdisjoint(event.type for event in events)
    assert events[-1].session == session
    calls = [event for event in events if getattr(event, "item", None) and event.item.type == "function_call"]
    saved = [item for item in items(client, session.id) if item.type == "function_call"]
    assert [event.type for event in calls] == [f"{TURN}item.added"] * 2
    assert [event.item for event in calls] == saved
    assert [event.output_index for event in calls] == [0, 1]


def test_an_answered_call_is_not_repeated(client: OpenAI) -> None:
    session = create_waiting(client, "parallel", "both", tools=[WEATHER, CLOCK])
    first, second = session.required_actions
    client.beta.agents.sessions.events.create(session.id, events=[tool_result(first)])
    until(
        lambda: [i.status for i in items(client, session.id) if i.type == "function_call"],
        lambda statuses: statuses == ["completed", "in_progress"],
    )
    events = snapshot(client, session.id, "agent.session.requires_action")
    calls = [
        event.item.call_id
        for event in events
        if getattr(event, "item", None) and event.item.type == "function_call"
    ]
    assert calls == [second.call_id]
    assert events[-1].session.required_actions == [second]


def test_event_ids_of_a_snapshot_are_fresh(client: OpenAI) -> None:
    session = create_waiting(client)
    seen = [
        event.event_id
        for _ in range(3)
        for event in snapshot(client, session.id, "agent.session.requires_action")
    ]
    assert len(set(seen)) == len(seen)


def test_a_running_turn_is_shown_with_its_user_items(client: OpenAI, gate: Gate) -> None:
    session = create(client, "held", gate.text)
    until(lambda: turns(client, session.id)[0].status, lambda status: status == "in_progress")
    with Watcher(client, session.id) as watcher:
        added = watcher.wait(f"{TURN}item.added")
        assert watcher.types[0] == "agent.session.in_progress"
        assert kinds([added.item]) == ["user"]
        assert (added.item, added.output_index) == (items(client, session.id)[0], None)
        assert NEVER_REPEATED.isdisjoint(watcher.types)
        gate.release()
        watcher.wait("agent.session.idle")
        deltas = [event.delta for event in watcher.events if event.type == f"{TURN}output_text.delta"]
        assert "".join(deltas) == "Released."


def test_a_message_in_mid_text_is_shown_as_far_as_it_was_said(client: OpenAI, gate: Gate) -> None:
    session = create_idle(client, "gated")
    with Watcher(client, session.id) as early:
        client.beta.agents.sessions.events.create(session.id, events=[message(gate.text)])
        first = early.wait(f"{TURN}output_text.delta")
        with Watcher(client, session.id) as late:
            late.wait(f"{TURN}output_text.delta")
            types = late.types
            assert types[0] == "agent.session.in_progress"
            assert NEVER_REPEATED.isdisjoint(types)
            assert types[-3:] == [
                f"{TURN}item.added",
                f"{TURN}content_part.added",
                f"{TURN}output_text.delta",
            ]
            added, part, delta = late.events[-3:]
            assert (added.item.id, added.item.content, added.item.status) == (
                first.item_id,
                [],
                "in_progress",
            )
            assert added.output_index == 0
            assert part.part.text == ""
            assert (part.item_id, part.content_index) == (first.item_id, 0)
            assert (delta.item_id, delta.delta) == (first.item_id, "Before, ")
            gate.release()
            early.wait("agent.session.idle", after=1)
            late.wait("agent.session.idle")
            for watcher in (early, late):
                said = [event.delta for event in watcher.events if event.type == f"{TURN}output_text.delta"]
                assert "".join(said) == "Before, after."
            assert not {e.event_id for e in late.events[: len(types)]} & {e.event_id for e in early.events}
            live = [event for event in late.events[len(types) :] if not event.type.endswith(".delta")]
            assert [event.event_id for event in live] == [
                event.event_id for event in early.events[-len(live) :] if not event.type.endswith(".delta")
            ]


def test_subscribers_at_any_moment_of_a_long_text_miss_nothing(client: OpenAI) -> None:
    session = create_idle(client, "long", "Warm up.")
    whole = items(client, session.id)[-1].content[0].to_dict()["text"]
    with Watcher(client, session.id) as first:
        client.beta.agents.sessions.events.create(session.id, events=[message("Again.")])
        first.wait(f"{TURN}output_text.delta")
        late = []
        for _ in range(5):
            late.append(Watcher(client, session.id))
            first.wait(f"{TURN}output_text.delta")
        try:
            for watcher in [first, *late]:
                watcher.wait(f"{TURN}completed" if watcher is first else "agent.session.idle")
            for watcher in [first, *late]:
                events = watcher.events
                if not any(event.type == f"{TURN}output_text.delta" for event in events):
                    continue  # subscribed behind the end
                said = [event.delta for event in events if event.type == f"{TURN}output_text.delta"]
                assert "".join(said) == whole
                done = [event.text for event in events if event.type == f"{TURN}output_text.done"]
                assert done == [whole]
        finally:
            for watcher in late:
                watcher.close()


def test_reading_after_subscribing_completes_the_picture_at_any_moment(client: OpenAI) -> None:
    for _ in range(10):
        session = create(client, "echo")
        with Watcher(client, session.id) as watcher:
            state = {item.id: item for item in items(client, session.id)}
            watcher.wait("agent.session.idle")
            for event in watcher.events:
                if event.type in (f"{TURN}item.added", f"{TURN}item.done"):
                    known = state.get(event.item.id)
                    if known is None or known.status != "completed":
                        state[event.item.id] = event.item
        assert list(state.values()) == items(client, session.id)


def test_the_handler_of_a_call_that_is_repeated_runs_once(client: OpenAI) -> None:
    session = create_idle(client, "weather", tools=[WEATHER])
    runs: list[Any] = []

    def weather(arguments: dict[str, Any]) -> str:
        runs.append(arguments)
        # A second subscriber makes the server repeat the call while the first one handles it.
        snapshot(client, session.id, "agent.session.requires_action")
        return "7 °C"

    with client.beta.agents.sessions.stream(
        session.id, input="The weather?", tool_handlers={"weather": weather}
    ) as stream:
        assert stream.get_final_result().output_text == "It is 7 °C."
    assert len(runs) == 1


def test_a_new_subscriber_of_a_restarted_conversation_is_bound_to_no_old_turn(client: OpenAI) -> None:
    session = create_idle(client)
    for text in ("One.", "Two."):
        with client.beta.agents.sessions.stream(session.id, input=text) as stream:
            events = list(stream)
        created = [event.turn_id for event in events if event.type == f"{TURN}created"]
        assert created == [turns(client, session.id)[-1].id]
    until_status(client, session.id, "idle")
