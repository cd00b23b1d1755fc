"""What a new subscriber receives first: a snapshot of now, then everything from now on."""

from __future__ import annotations

from contextlib import ExitStack
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


def call_events(events: list[Any]) -> list[Any]:
    """The events that announce function calls."""
    return [e for e in events if e.type == f"{TURN}item.added" and e.item.type == "function_call"]


def data(events: list[Any]) -> list[dict[str, Any]]:
    """Events without what differs between connections; deltas left out, since they may be merged."""
    ignored = {"event_id", "obfuscation"}
    return [
        {key: value for key, value in event.to_dict().items() if key not in ignored}
        for event in events
        if not event.type.endswith(".delta")
    ]


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
    calls = call_events(events)
    saved = [item for item in items(client, session.id) if item.type == "function_call"]
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
    assert [event.item.call_id for event in call_events(events)] == [second.call_id]
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
        assert added.item == items(client, session.id)[0]
        assert added.output_index is None
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
            assert [kind.removeprefix(TURN) for kind in types[-3:]] == [
                "item.added",
                "content_part.added",
                "output_text.delta",
            ]
            added, part, delta = late.events[-3:]
            assert (added.item.id, added.item.content) == (first.item_id, [])
            assert (added.item.status, added.output_index) == ("in_progress", 0)
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
            live = data(late.events[len(types) :])
            assert live == data(early.events)[-len(live) :]


def test_subscribers_at_any_moment_of_a_text_miss_nothing(client: OpenAI) -> None:
    session = create(client, "spoken")
    with ExitStack() as stack:
        watchers = []
        while client.beta.agents.sessions.retrieve(session.id).status == "in_progress":
            watchers.append(stack.enter_context(Watcher(client, session.id)))
            watchers[-1].wait(lambda event: event.type in (f"{TURN}output_text.delta", "agent.session.idle"))
        (turn,) = turns(client, session.id)
        whole = items(client, session.id)[-1].content[0].to_dict()["text"]
        assert len(whole) == 8 * 1024
        in_mid_text = 0
        for watcher in watchers:
            watcher.wait("agent.session.idle")
            events = [event for event in watcher.events if getattr(event, "turn_id", None) == turn.id]
            if not events:
                continue  # subscribed behind the end
            said = [event.delta for event in events if event.type == f"{TURN}output_text.delta"]
            assert "".join(said) == whole
            assert [event.text for event in events if event.type == f"{TURN}output_text.done"] == [whole]
            in_mid_text += len(said[0]) not in (0, 64)
        assert in_mid_text > 0


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
        listed = items(client, session.id)
        assert [item.to_dict() for item in state.values()] == [item.to_dict() for item in listed]


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
