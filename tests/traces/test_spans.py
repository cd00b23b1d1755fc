"""The spans of real sessions: their tree, what they say, and what they never say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from opentelemetry.trace import SpanKind, StatusCode
from tests.conformance.inputs import WEATHER, cancel, message, tool_result
from tests.traces.place import SECRET, Traced, below, events, links, named, said, until

from perdure.harness.spans import first_span_of, trace_id_of

SCRIPT = f"""
[[rule]]
when = {{ note_contains = "about to leave your view" }}
answer = [{{ text = "A summary {SECRET}." }}]
usage = {{ input_tokens = 50, output_tokens = 5 }}

[[rule]]
when = {{ agent = "?*", user_contains = "break" }}
answer = [{{ fault = "server_error", retryable = false, message = "{SECRET} broke." }}]

[[rule]]
when = {{ agent = "?*", user_matches = 'gate (?P<gate>[0-9a-f]+)' }}
answer = [{{ chunks = ["Before, ", {{ wait_for_file = "gates/{{gate}}" }}, "after."] }}]

[[rule]]
when = {{ agent = "?*" }}
answer = [{{ text = "Done {SECRET}." }}]
usage = {{ input_tokens = 100, output_tokens = 10, cached_tokens = 40, reasoning_tokens = 4 }}

[[rule]]
when = {{ user_contains = "three", step = 0 }}
answer = [
    {{ call = "create_subagent", arguments = {{ task = "Say yes {SECRET}.", name = "one {SECRET}" }} }},
    {{ call = "create_subagent", arguments = {{ task = "Please break.", name = "two" }} }},
    {{ call = "create_subagent", arguments = {{ task = "Say no.", name = "three" }} }},
    {{ call = "wait_for_subagents", arguments = {{ }} }},
]
usage = {{ input_tokens = 10, output_tokens = 1 }}

[[rule]]
when = {{ user_matches = 'hold (?P<gate>gate [0-9a-f]+)', step = 0 }}
answer = [
    {{ call = "create_subagent", arguments = {{ task = "{{gate}}", name = "held" }} }},
    {{ call = "wait_for_subagents", arguments = {{ }} }},
]

[[rule]]
when = {{ user_contains = "weather", step = 0 }}
answer = [
    {{ call = "weather", arguments = {{ city = "{SECRET}" }} }},
    {{ call = "tell_{SECRET}", arguments = {{ }} }},
]
usage = {{ input_tokens = 10, output_tokens = 1 }}

[[rule]]
when = {{ user_contains = "retry", times = 1 }}
answer = [{{ fault = "server_overloaded", retryable = true, message = "{SECRET}" }}]

[[rule]]
when = {{ user_contains = "fail" }}
answer = [{{ fault = "authentication_error", message = "{SECRET}" }}]

[[rule]]
when = {{ user_matches = '^gate (?P<gate>[0-9a-f]+)', step = 0 }}
answer = [{{ chunks = ["Before, ", {{ wait_for_file = "gates/{{gate}}" }}, "after."] }}]

[[rule]]
when = {{ }}
answer = [{{ text = "Hello {SECRET}." }}]
usage = {{ input_tokens = 20, output_tokens = 2 }}
"""
CREW = {"multi_agent": {"enabled": True}}


@pytest.fixture
def traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Traced:
    return Traced(tmp_path / "place", SCRIPT, monkeypatch)


async def test_a_turn_is_a_span_with_a_span_for_its_model_call(traced: Traced) -> None:
    async with traced.run() as client:
        session = await client.finish("Hello.")
        (turn,) = await client.turns(session.id)
    agent, call = sorted(traced.spans, key=lambda span: span.start_time or 0)
    assert agent.name == "invoke_agent"
    assert agent.context is not None
    assert agent.context.trace_id == trace_id_of(turn.id)
    assert agent.parent is None
    assert agent.kind is SpanKind.INTERNAL
    assert said(agent) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.conversation.id": session.id,
        "gen_ai.agent.id": session.agent.id,
        "gen_ai.request.model": "actor",
        "gen_ai.usage.input_tokens": 20,
        "gen_ai.usage.output_tokens": 2,
        "gen_ai.usage.cache_read.input_tokens": 0,
        "gen_ai.usage.reasoning.output_tokens": 0,
        "perdure.turn.id": turn.id,
        "perdure.model_calls": 1,
        "perdure.outcome": "completed",
    }
    assert [name for name, _ in events(agent)] == ["perdure.turn.ended"]
    assert below(traced.spans, agent) == [call]
    assert call.name == "chat actor"
    told = said(call)
    assert 0 <= told.pop("gen_ai.response.time_to_first_chunk") < 60
    assert told == {
        "gen_ai.operation.name": "chat",
        "gen_ai.conversation.id": session.id,
        "gen_ai.agent.id": session.agent.id,
        "gen_ai.provider.name": "actor",
        "gen_ai.request.model": "actor",
        "gen_ai.request.stream": True,
        "gen_ai.output.type": "text",
        "gen_ai.response.id": "scripted-1",
        "gen_ai.usage.input_tokens": 20,
        "gen_ai.usage.output_tokens": 2,
        "gen_ai.usage.cache_read.input_tokens": 0,
        "gen_ai.usage.reasoning.output_tokens": 0,
        "perdure.turn.id": turn.id,
        "perdure.provider": "actor",
        "perdure.purpose": "step",
        "perdure.step": 0,
        "perdure.outcome": "ok",
    }
    assert agent.resource.attributes["service.name"] == "perdure"


async def test_two_turns_are_two_traces(traced: Traced) -> None:
    async with traced.run() as client:
        session = await client.finish("Hello.")
        await client.post(session.id, message("Again."))
        await client.until(session.id, "idle")
        turns = await client.turns(session.id)
    agents = named(traced.spans, "invoke_agent")
    assert [span.context.trace_id for span in agents if span.context] == [trace_id_of(t.id) for t in turns]


@pytest.mark.parametrize("restarts", [False, True], ids=["in one process", "in two processes"])
async def test_a_turn_that_waited_goes_on_in_its_trace_and_waiting_is_in_no_span(
    traced: Traced, restarts: bool
) -> None:
    async with traced.run() as client:
        session = await client.create("The weather?", tools=[WEATHER])
        session = await client.until(session.id, "requires_action")
        (action,) = session.required_actions
        if not restarts:
            await client.post(session.id, tool_result(action, SECRET))
            await client.until(session.id, "idle")
    if restarts:
        async with traced.run() as client:
            await client.post(session.id, tool_result(action, SECRET))
            await client.until(session.id, "idle")
    first, second = named(traced.spans, "invoke_agent")
    assert first.context is not None
    assert second.context is not None
    assert [said(span)["perdure.outcome"] for span in (first, second)] == ["waiting", "completed"]
    assert first.context.trace_id == second.context.trace_id == trace_id_of(action.turn_id)
    assert first.context.span_id == first_span_of(action.turn_id).span_id
    assert links(second) == [first.context.span_id]
    assert (first.end_time or 0) <= (second.start_time or 0)
    assert [said(call)["perdure.step"] for call in named(traced.spans, "chat")] == [0, 1]
    assert [event for event in events(first) if event[0] == "perdure.tool_call"] == [
        (
            "perdure.tool_call",
            {
                "gen_ai.tool.name": "weather",
                "gen_ai.tool.type": "function",
                "gen_ai.tool.call.id": action.call_id,
                "perdure.step": 0,
                "perdure.outcome": "announced",
            },
        ),
        # The name is none that the application gave: it is a text of the model, and is not told.
        (
            "perdure.tool_call",
            {
                "gen_ai.tool.type": "function",
                "gen_ai.tool.call.id": events(first)[1][1]["gen_ai.tool.call.id"],
                "perdure.step": 0,
                "perdure.outcome": "refused",
            },
        ),
    ]


async def test_each_try_of_a_model_call_is_a_span(traced: Traced) -> None:
    async with traced.run() as client:
        await client.finish("Please retry.")
    (agent,) = named(traced.spans, "invoke_agent")
    failed, made = below(traced.spans, agent)
    assert said(failed)["perdure.outcome"] == "failed"
    assert said(failed)["error.type"] == "server_overloaded"
    assert said(failed)["perdure.error.retryable"] is True
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.status.description is None
    assert said(made)["perdure.outcome"] == "ok"
    assert said(agent)["perdure.model_calls"] == 2
    assert agent.status.status_code is StatusCode.UNSET


async def test_a_failed_turn_says_its_code(traced: Traced) -> None:
    async with traced.run() as client:
        await client.finish("Please fail.")
    (agent,) = named(traced.spans, "invoke_agent")
    (call,) = below(traced.spans, agent)
    assert said(agent)["perdure.outcome"] == "failed"
    for span in (agent, call):
        assert said(span)["error.type"] == "authentication_error"
        assert span.status.status_code is StatusCode.ERROR
        assert span.status.description is None


async def test_a_cancelled_turn_is_no_error(traced: Traced) -> None:
    word, _ = traced.gate()
    async with traced.run() as client:
        session = await client.create(word)
        await until_writing(client, session.id)
        await client.post(session.id, cancel())
        await client.until(session.id, "idle")
    (agent,) = named(traced.spans, "invoke_agent")
    (call,) = below(traced.spans, agent)
    assert said(agent)["perdure.outcome"] == said(call)["perdure.outcome"] == "cancelled"
    assert agent.status.status_code is call.status.status_code is StatusCode.UNSET


async def test_the_end_of_a_turn_that_waits_is_a_span_of_its_trace(traced: Traced) -> None:
    async with traced.run() as client:
        session = await client.create("The weather?", tools=[WEATHER])
        await client.until(session.id, "requires_action")
        await client.post(session.id, cancel())
        await client.until(session.id, "idle")
        (turn,) = await client.turns(session.id)
    waited, end = named(traced.spans, "invoke_agent")
    assert waited.context is not None
    assert said(end)["perdure.outcome"] == "cancelled"
    assert said(end)["perdure.turn.id"] == turn.id
    assert links(end) == [waited.context.span_id]


async def test_a_turn_that_was_broken_off_is_recovered_in_its_trace(traced: Traced) -> None:
    word, path = traced.gate()
    async with traced.run() as client:
        session = await client.create(word)
        await until_writing(client, session.id)
    path.touch()
    async with traced.run() as client:
        await client.until(session.id, "idle")
    torn, again = named(traced.spans, "invoke_agent")
    assert torn.context is not None
    assert said(torn)["perdure.outcome"] == "broken_off"
    assert said(again)["perdure.outcome"] == "completed"
    assert said(again)["perdure.turn.recovered"] is True
    assert events(again)[0][0] == "perdure.turn.recovered"
    assert links(again) == [torn.context.span_id]


async def test_subagents_are_below_the_agent_that_created_them(traced: Traced) -> None:
    async with traced.run() as client:
        session = await client.finish("Ask three.", **CREW)
        (turn,) = await client.turns(session.id)
        children = [child async for child in client.sessions.subagents.list(session.id, order="asc")]
    first, *_, second = [s for s in named(traced.spans, "invoke_agent") if s.name == "invoke_agent"]
    assert first.context is not None
    made = [told for name, told in events(first) if name == "perdure.tool_call"]
    assert [told["gen_ai.tool.name"] for told in made] == ["create_subagent"] * 3 + ["wait_for_subagents"]
    assert {told["perdure.outcome"] for told in made} == {"made"}
    spans = {said(span).get("perdure.subagent.id"): span for span in below(traced.spans, first)}
    call = spans.pop(None)
    assert call.name == "chat actor"
    assert set(spans) == {child.id for child in children}
    outcomes = {}
    for child in children:
        span = spans[child.id]
        assert span.name == "invoke_agent subagent"
        told = said(span)
        outcomes[child.name] = told["perdure.outcome"]
        assert told["gen_ai.agent.id"] == child.id
        assert told["perdure.parent_agent.id"] == session.agent.id
        assert told["gen_ai.conversation.id"] == session.id
        assert "gen_ai.agent.name" not in told
        calls = below(traced.spans, span)
        assert [said(call)["perdure.subagent.id"] for call in calls] == [child.id]
    assert outcomes.pop("two") == "failed"
    assert set(outcomes.values()) == {"completed"}
    assert said(second)["perdure.outcome"] == "completed"
    assert said(second)["perdure.turn.id"] == turn.id
    assert links(second)
    one = spans[children[0].id]
    assert said(one)["gen_ai.usage.input_tokens"] == 100
    assert said(one)["gen_ai.usage.cache_read.input_tokens"] == 40
    assert said(one)["gen_ai.usage.reasoning.output_tokens"] == 4
    assert session.usage is None or session.usage.input_tokens > 100


async def test_a_cancel_ends_the_spans_of_all_agents(traced: Traced) -> None:
    word, _ = traced.gate()
    async with traced.run() as client:
        session = await client.create(f"hold {word}", **CREW)
        await until_subagent_writes(client, session.id)
        await client.post(session.id, cancel())
        await client.until(session.id, "idle")
    (child,) = [span for span in traced.spans if span.name == "invoke_agent subagent"]
    (call,) = below(traced.spans, child)
    assert said(child)["perdure.outcome"] == said(call)["perdure.outcome"] == "cancelled"
    roots = [span for span in named(traced.spans, "invoke_agent") if span.name == "invoke_agent"]
    assert said(roots[-1])["perdure.outcome"] == "cancelled"


async def test_a_subagent_that_goes_on_elsewhere_points_to_the_turn_above(traced: Traced) -> None:
    word, path = traced.gate()
    async with traced.run() as client:
        session = await client.create(f"hold {word}", **CREW)
        await until_subagent_writes(client, session.id)
    path.touch()
    async with traced.run() as client:
        await client.until(session.id, "idle")
        (turn,) = await client.turns(session.id)
    torn, again = [s for s in named(traced.spans, "invoke_agent") if s.name == "invoke_agent subagent"]
    assert torn.parent is not None
    assert said(torn)["perdure.outcome"] == "broken_off"
    assert again.parent is None
    assert links(again) == [first_span_of(turn.id).span_id]
    assert said(again)["perdure.turn.id"] == said(torn)["perdure.turn.id"]
    assert said(again)["perdure.turn.recovered"] is True
    assert said(again)["perdure.outcome"] == "completed"


async def test_a_summary_is_a_call_of_the_turn_that_needed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traced = Traced(tmp_path / "place", SCRIPT, monkeypatch, "context_window = 4000")
    async with traced.run() as client:
        session = await client.finish("Word " * 1500)
        for _ in range(2):
            await client.post(session.id, message("Word " * 1500))
            await client.until(session.id, "idle")
    summaries = [
        call for call in named(traced.spans, "chat") if said(call)["perdure.purpose"] == "compaction"
    ]
    assert summaries
    for call in summaries:
        assert "perdure.step" not in said(call)
        assert said(call)["perdure.outcome"] == "ok"
        (above,) = [
            agent for agent in named(traced.spans, "invoke_agent") if call in below(traced.spans, agent)
        ]
        later = [said(each) for each in below(traced.spans, above) if "perdure.step" in said(each)]
        assert [each.get("gen_ai.conversation.compacted") for each in later] == [True]


async def test_a_fault_in_a_trace_does_not_disturb_a_turn(
    traced: Traced, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("no span today")

    async with traced.run() as client:
        monkeypatch.setattr("opentelemetry.sdk.trace.Tracer.start_span", broken)
        session = await client.finish("Hello.")
        assert (await client.turns(session.id))[0].status == "completed"
    assert traced.spans == []
    assert "a span was not recorded" in caplog.text


async def until_writing(client: Any, session_id: str) -> None:
    async def texts() -> list[Any]:
        items = [item async for item in client.sessions.items.list(session_id)]
        return [item for item in items if item.type == "message" and item.role == "assistant"]

    await until(texts, bool)


async def until_subagent_writes(client: Any, session_id: str) -> None:
    async def texts() -> list[Any]:
        children = [child async for child in client.sessions.subagents.list(session_id)]
        if not children:
            return []
        below = client.sessions.subagents.items
        items = [item async for item in below.list(children[0].id, session_id=session_id)]
        return [item for item in items if item.type == "message" and item.role == "assistant"]

    await until(texts, bool)
