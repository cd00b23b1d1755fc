"""Two servers on one database: the turn runs on one of them, and readers of either see the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI
from tests.conformance.inputs import NONE, WEATHER, message, tool_result
from tests.conformance.watch import Watcher, until_status
from tests.server import ServerProcess, WorkerProcess, scripted_config

pytestmark = pytest.mark.slow

TURN = "agent.session.turn."
IDLE = "agent.session.idle"

STORY = """
[[rule]]
when = { newest = "result" }
answer = [{ text = "It is {result}." }]

[[rule]]
when = { user_contains = "weather" }
answer = [{ text = "Let me look." }, { call = "weather", arguments = { city = "Oslo" } }]

[[rule]]
when = { user_matches = "^think (?P<gate>[a-z0-9-]+)$" }
answer = [
    { reasoning = "What was asked is hard, and so I think.", delta_size = 4, pause = 0.01 },
    { chunks = ["Before, ", { wait_for_file = "{gate}" }, "after."] },
]

[[rule]]
when = { user_matches = "^gate (?P<gate>[a-z0-9-]+)$" }
answer = [{ chunks = ["Before, ", { wait_for_file = "{gate}" }, "between, ", { pause = 0.3 }, "after."] }]

[otherwise]
answer = [{ text = "Word by word, this is what you said: {user}", delta_size = 3, pause = 0.01 }]
"""


@dataclass(frozen=True)
class Pair:
    """A server that runs the sessions, and one that runs none."""

    first: OpenAI
    second: OpenAI
    gates: Path

    def open(self, name: str) -> None:
        (self.gates / name).touch()

    def create(self, said: str = "Hello.", **agent: Any) -> Any:
        agent = {"model": "story", **agent}
        session = self.first.beta.agents.sessions.create(agent=agent, environment=NONE, input=said)
        return until_status(self.first, session.id, "idle", "requires_action")

    def say(self, client: OpenAI, session_id: str, *events: Any) -> None:
        client.beta.agents.sessions.events.create(session_id, events=list(events))


@pytest.fixture(params=["notify", "nats"])
def pair(request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str) -> Iterator[Pair]:
    bus = ["--bus", request.getfixturevalue("nats_url")] if request.param == "nats" else []
    config = scripted_config(tmp_path / "config", {"story": STORY})
    with ExitStack() as stack:
        first = stack.enter_context(
            ServerProcess(config, tmp_path / "first", database=postgres_url, arguments=bus)
        )
        second = stack.enter_context(
            ServerProcess(
                config, tmp_path / "second", database=postgres_url, arguments=[*bus, "--workers", "0"]
            )
        )
        clients = [
            stack.enter_context(OpenAI(base_url=server.base_url, api_key=server.api_key, max_retries=0))
            for server in (first, second)
        ]
        yield Pair(*clients, config.parent)


def stored(events: list[Any]) -> list[dict[str, Any]]:
    """Events that are stored, whole."""
    return [event.to_dict() for event in events if event.event_id.rpartition("_")[2].isdecimal()]


def said(events: list[Any]) -> str:
    return "".join(event.delta for event in events if event.type == f"{TURN}output_text.delta")


def test_both_nodes_tell_the_same(pair: Pair) -> None:
    session = pair.create(tools=[WEATHER])
    with Watcher(pair.first, session.id) as near, Watcher(pair.second, session.id) as far:
        watchers = (near, far)
        for watcher in watchers:
            watcher.wait(IDLE)
        pair.say(pair.first, session.id, message("Tell me more."))
        for watcher in watchers:
            watcher.wait(IDLE, after=1)
        pair.say(pair.second, session.id, message("The weather?"))
        for watcher in watchers:
            watcher.wait("agent.session.requires_action")
        (action,) = pair.second.beta.agents.sessions.retrieve(session.id).required_actions
        before = [len(watcher.events) for watcher in watchers]
        pair.say(pair.second, session.id, tool_result(action, output="mild"))
        for watcher, count in zip(watchers, before, strict=True):
            watcher.wait(IDLE, after=count)
        assert stored(near.events) == stored(far.events)
        assert len(stored(near.events)) > 20
        texts = [event.text for event in near.events if event.type == f"{TURN}output_text.done"]
        assert texts == ["Word by word, this is what you said: Tell me more.", "Let me look.", "It is mild."]
        assert said(near.events) == said(far.events) == "".join(texts)
        # It was told while it was written: not once it had ended.
        assert len([event for event in far.events if event.type == f"{TURN}output_text.delta"]) > 5


def test_who_attaches_elsewhere_in_mid_text_gets_the_text_so_far_and_then_the_rest(pair: Pair) -> None:
    session = pair.create()
    with Watcher(pair.first, session.id) as early:
        early.wait(IDLE)
        pair.say(pair.first, session.id, message("gate one"))
        first = early.wait(f"{TURN}output_text.delta")
        with Watcher(pair.second, session.id) as far:
            delta = far.wait(f"{TURN}output_text.delta")
            assert (delta.item_id, delta.delta) == (first.item_id, "Before, ")
            kinds = [kind.removeprefix(TURN) for kind in far.types]
            assert kinds[0] == "agent.session.in_progress"
            assert kinds[-3:] == ["item.added", "content_part.added", "output_text.delta"]
            with Watcher(pair.second, session.id) as further:
                assert further.wait(f"{TURN}output_text.delta").delta == "Before, "
                pair.open("one")
                for watcher in (far, further):
                    watcher.wait(IDLE)
                    assert said(watcher.events) == "Before, between, after."
                    assert len([e for e in watcher.events if e.type == f"{TURN}output_text.delta"]) >= 3
            early.wait(IDLE, after=1)
            live = stored(far.events)
            assert live == stored(early.events)[-len(live) :]


def test_reasoning_reaches_the_other_node_part_by_part(pair: Pair) -> None:
    session = pair.create(reasoning={"effort": "low", "summary": "auto"})
    with Watcher(pair.first, session.id) as near, Watcher(pair.second, session.id) as far:
        for watcher in (near, far):
            watcher.wait(IDLE)
        pair.say(pair.second, session.id, message("think two"))
        far.wait(f"{TURN}output_text.delta")
        pair.open("two")
        for watcher in (near, far):
            watcher.wait(IDLE, after=1)
        assert stored(near.events) == stored(far.events)
        for watcher in (near, far):
            deltas = [e for e in watcher.events if e.type == f"{TURN}reasoning_summary_text.delta"]
            assert "".join(e.delta for e in deltas) == "What was asked is hard, and so I think."
        assert said(near.events) == said(far.events) == "Before, after."


def test_a_stream_of_a_creation_on_the_node_that_runs_nothing(pair: Pair) -> None:
    stream = pair.second.beta.agents.sessions.create(
        agent={"model": "story"}, environment=NONE, input="Hello.", stream=True
    )
    events = list(stream)
    assert [event.type for event in events][:2] == ["agent.session.created", f"{TURN}created"]
    assert said(events) == "Word by word, this is what you said: Hello."
    assert events[-1].type == IDLE
    seqs = [int(event["event_id"].rpartition("_")[2]) for event in stored(events)]
    assert seqs == list(range(1, len(seqs) + 1))


def test_a_replay_on_another_node_goes_on_live(pair: Pair) -> None:
    session = pair.create()
    with Watcher(pair.first, session.id) as near:
        near.wait(IDLE)
        pair.say(pair.first, session.id, message("gate three"))
        near.wait(f"{TURN}output_text.delta")
        cursor = stored(near.events)[2]["event_id"]
        with Watcher(pair.second, session.id, extra_query={"after": cursor}) as far:
            far.wait(f"{TURN}output_text.delta")
            pair.open("three")
            near.wait(IDLE, after=1)
            far.wait(IDLE)
            assert stored(far.events) == stored(near.events)[3:]
            assert said(far.events) == "Before, between, after."


def test_the_streams_of_a_deleted_session_end_on_every_node(pair: Pair) -> None:
    session = pair.create()
    with Watcher(pair.first, session.id) as near, Watcher(pair.second, session.id) as far:
        for watcher in (near, far):
            watcher.wait(IDLE)
        pair.first.beta.agents.sessions.delete(session.id)
        near.wait_end()
        far.wait_end()


def test_a_takeover_in_mid_text_is_told_the_same_on_a_third_node(tmp_path: Path, postgres_url: str) -> None:
    """The worker that writes is killed; another one closes the item and repeats the step."""
    config = scripted_config(tmp_path / "config", {"story": STORY})
    with ExitStack() as stack:
        nodes = [
            stack.enter_context(
                ServerProcess(
                    config, tmp_path / f"node{number}", database=postgres_url, arguments=["--workers", "0"]
                )
            )
            for number in range(2)
        ]
        workers = [stack.enter_context(WorkerProcess(config, tmp_path / "worker0", database=postgres_url))]
        one, other = (
            stack.enter_context(OpenAI(base_url=node.base_url, api_key=node.api_key, max_retries=0))
            for node in nodes
        )
        session = one.beta.agents.sessions.create(
            agent={"model": "story"}, environment=NONE, input="gate four"
        )
        with Watcher(one, session.id) as near, Watcher(other, session.id) as far:
            for watcher in (near, far):
                watcher.wait(f"{TURN}output_text.delta")
            workers.append(
                stack.enter_context(WorkerProcess(config, tmp_path / "worker1", database=postgres_url))
            )
            workers[0].kill()
            for watcher in (near, far):
                watcher.wait(
                    lambda event: event.type == f"{TURN}item.done" and event.item.status == "incomplete"
                )
            (config.parent / "four").touch()
            for watcher in (near, far):
                watcher.wait(IDLE)
            assert stored(near.events)[-5:] == stored(far.events)[-5:]
            for watcher in (near, far):
                last = [e for e in watcher.events if e.type == f"{TURN}output_text.done"][-1]
                assert last.text == "Before, between, after."
                mine = [e for e in watcher.events if getattr(e, "item_id", None) == last.item_id]
                assert said(mine) == last.text
