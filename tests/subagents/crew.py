"""The transactions of a session's agents, made one by one in any order: an owner without models or tasks.

`Crew` does what the loop does with each boundary, and a test decides which agent goes on, when the user says
something, and when the owner dies. Between any two transactions, `check` looks at all rows.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, select
from tests.conformance.inputs import cancel, message

from perdure.store.accept import accept_once
from perdure.store.boundary import Boundary, Failure
from perdure.store.claims import claim, look
from perdure.store.coordination import COORDINATION_ITEMS, Coordination
from perdure.store.engine import now_us
from perdure.store.policy import Policy
from perdure.store.sessions import create_session, delete_session, resolve_settings
from perdure.store.spending import Tally
from perdure.store.steps import Output, Spent, Text, abandon_step, commit_step
from perdure.store.tables import inbox, items, sessions, subagents, turns, waits
from perdure.store.tx import Tx
from perdure.wire.ids import new_id
from perdure.wire.inputs import EventBatch
from perdure.wire.sessions import SessionCreate
from perdure.wire.usage import TokenUsage

PROJECT = "default"
ENDED = {"completed", "failed", "cancelled"}
HOUR = 3_600_000_000


class Crew:
    """One session and its owner. Agents are named by name; the root is ""."""

    def __init__(self, engine: Engine, *, limit: int = 6, policy: Policy | None = None) -> None:
        self.engine = engine
        self.policy = policy or Policy()
        self.id = new_id("sess")
        self.owners = 0
        self.late_us = 0
        self.counts = True
        self.boundaries: dict[str, Boundary] = {}
        self.woken: set[str] = set()
        body = SessionCreate.model_validate(
            {
                "agent": {
                    "model": "m",
                    "multi_agent": {"enabled": True, "max_concurrent_subagents": limit},
                },
                "environment": {"type": "none"},
                "input": "Hello.",
            }
        )
        with self.tx() as inside:
            name, agent = resolve_settings(inside.conn, PROJECT, body)
            create_session(inside, self.id, PROJECT, body, name, agent)
        self.take_over()

    @contextmanager
    def tx(self) -> Iterator[Tx]:
        with self.engine.begin() as conn:
            if self.engine.dialect.name == "sqlite":
                conn.exec_driver_sql("BEGIN IMMEDIATE")
            yield Tx(conn, now_us() + self.late_us)
            if self.engine.dialect.name == "sqlite":
                conn.exec_driver_sql("COMMIT")

    # ---- what owners do

    def take_over(self) -> None:
        """The owner dies, wherever it is, and another one claims the session."""
        self.owners += 1
        self.boundaries, self.woken = {}, set()
        with self.tx() as inside:
            found = claim(inside, self.id, owner=f"worker_{self.owners}", policy=self.policy)
        # Where nobody has anything to do, what the dead one had begun is counted by the next claim.
        self.counts = found is not None
        if found is not None:
            self._take(found)

    def look(self, agent_id: str) -> None:
        """Let an agent without a step look at what happened."""
        self.woken.discard(agent_id)
        lease = next(iter(self.boundaries.values())).lease
        known = self.boundaries.get(agent_id)
        unbegun = known is not None and known.is_reserved
        with self.tx() as inside:
            found = look(inside, lease, agent_id, policy=self.policy, unbegun=int(unbegun))
        self._take(found)

    def step(self, name: str, *outputs: Output, ends: bool = False) -> None:
        """An agent's model answers with this."""
        boundary = self.at_work(name)
        assert boundary is not None, f"'{name}' makes no step"
        assert boundary.turn is not None
        usage = TokenUsage.of(10, 1)
        with self.tx() as inside:
            found = commit_step(
                inside,
                boundary.lease,
                boundary.turn.id,
                boundary.turn.model_calls,
                outputs,
                Spent(usage, 5),
                ending="completed" if ends else None,
                policy=self.policy,
                agent_id=boundary.agent_id,
            )
        self._take(found)

    def break_off(self, name: str, *, fails: bool) -> None:
        """An agent's model fails, or its step is broken off."""
        boundary = self.at_work(name)
        assert boundary is not None
        assert boundary.turn is not None
        failure = Failure("server_error", "It broke.") if fails else None
        with self.tx() as inside:
            found = abandon_step(
                inside,
                boundary.lease,
                boundary.turn.id,
                [],
                Spent(None, 5),
                failure=failure,
                policy=self.policy,
                agent_id=boundary.agent_id,
            )
        self._take(found)

    def say(self, name: str, text: str) -> None:
        """An agent answers, which ends its turn."""
        part = {"type": "output_text", "text": text}
        data = {"role": "assistant", "content": [part] if text else [], "phase": "final_answer"}
        self.step(name, Text("message", data), ends=True)

    def call(self, name: str, tool: Any, **arguments: Any) -> str:
        """An agent makes one coordination call; returns its result, "" while there is none."""
        self.step(name, Coordination(tool, arguments))
        calls = [row for row in self.rows(items) if row.type in COORDINATION_ITEMS]
        return str((calls[-1].private or {}).get("result", ""))

    def _take(self, boundary: Boundary) -> None:
        self.boundaries[boundary.agent_id] = boundary
        self.woken |= set(boundary.woken)
        self.woken.discard(boundary.agent_id)

    def at_work(self, name: str) -> Boundary | None:
        """The boundary of an agent that makes a step, which may be of a turn that is over by now."""
        for boundary in self.boundaries.values():
            called = "" if boundary.subagent is None else boundary.subagent.name
            if called == name and boundary.state == "run":
                return boundary
        return None

    @property
    def working(self) -> list[str]:
        """The names of the agents that make a step."""
        found = [each for each in self.boundaries.values() if each.state == "run"]
        return sorted("" if each.subagent is None else each.subagent.name for each in found)

    def look_around(self) -> None:
        """Let all look that were woken and make no step; the others do it with their step."""
        while waiting := sorted(self.woken - {self._agent(name) for name in self.working}):
            self.look(waiting[0])

    def look_at(self, number: int) -> None:
        """Let one of those that were woken look, even if it was about to make a step."""
        waiting = sorted(self.woken)
        self.look(waiting[number % len(waiting)])

    def finish(self) -> None:
        """Let every agent answer until nobody has anything to do."""
        for _ in range(200):
            self.look_around()
            if not self.working:
                return
            self.say(self.working[-1], "Finished.")
        raise AssertionError("the session does not come to rest")

    def _agent(self, name: str) -> str:
        if not name:
            return str(self.row.agent_id)
        return next(row.id for row in self.rows(subagents) if row.name == name)

    # ---- what users do

    def accept(self, *events: Any) -> None:
        batch = EventBatch.model_validate({"events": list(events)}).events
        with self.tx() as inside:
            accept_once(inside, None, self.id, PROJECT, batch)
        if self.boundaries:
            self.woken.add(str(self.row.agent_id))
        else:
            self.take_over()

    def tell(self, *texts: str) -> None:
        self.accept(*(message(text) for text in texts))

    def cancel(self) -> None:
        self.accept(cancel())

    def delete(self) -> None:
        with self.tx() as inside:
            assert delete_session(inside, self.id, PROJECT)

    # ---- what there is

    @property
    def row(self) -> Any:
        (found,) = self.rows(sessions)
        return found

    def rows(self, table: Any) -> Sequence[Any]:
        key = table.c.id if table is sessions else table.c.session_id
        with self.engine.connect() as conn:
            found = conn.execute(select(table).where(key == self.id))
            return sorted(found.fetchall(), key=lambda row: getattr(row, "pos", 0))

    def statuses(self, name: str) -> list[str]:
        agent = self._agent(name)
        return [turn.status for turn in self.rows(turns) if turn.agent_id == agent]

    def unread(self) -> list[Any]:
        """What the root has not taken in yet."""
        return [row for row in self.rows(inbox) if row.agent_id == self.row.agent_id]

    def reports(self) -> list[tuple[str, str]]:
        """Reports that have become messages of any agent: of whom, and the text."""
        return [
            (row.private["report"]["name"], row.data["content"][0]["text"])
            for row in self.rows(items)
            if row.type == "agent_message" and "report" in (row.private or {})
        ]

    def result(self, number: int) -> Any:
        """The result of the coordination call with this number."""
        calls = [row for row in self.rows(items) if row.type in COORDINATION_ITEMS]
        return json.loads(calls[number].private["result"])

    # ---- what always holds

    def check(self) -> None:
        """The rows agree with each other, whatever happened."""
        session, all_turns, children = self.row, self.rows(turns), self.rows(subagents)
        open_turns = {turn.id: turn for turn in all_turns if turn.status not in ENDED}
        held = [each.turn_id for each in (session, *children) if each.turn_id is not None]
        assert sorted(held) == sorted(open_turns), "an agent's turn is not the one that is open"
        assert session.subagents == len(children)
        assert session.subagents_running == sum(each.turn_id is not None for each in children)
        assert (session.status == "idle") == (session.turn_id is None)
        assert not [each for each in children if each.status == "closed" and each.turn_id is not None]
        told = self.rows(inbox)
        assert session.inbox_count == len(told)
        assert not [row for row in told if row.agent_id not in {session.agent_id, *(c.id for c in children)}]
        self._check_reports(all_turns, told)
        self._check_waits(session, open_turns)
        spent = Tally(**(session.spent or {}))
        # What an owner has asked for and not ended, as far as it knows.
        assert not self.counts or spent.reserved == sum(each.is_reserved for each in self.boundaries.values())

    def _check_reports(self, all_turns: Sequence[Any], told: Sequence[Any]) -> None:
        """Each ended turn of a subagent is told once: as a report, or with the call that ended it."""
        waiting = Counter(row.payload["turn"] for row in told if row.kind == "report")
        read = Counter(
            (row.data["sender_agent_id"]) for row in self.rows(items) if "report" in (row.private or {})
        )
        at_once: Counter[str] = Counter()
        for row in self.rows(items):
            is_ending = row.type in ("interrupt_subagent_call", "close_subagent_call")
            if is_ending and row.status == "completed" and "last_text" in json.loads(row.private["result"]):
                at_once[row.data["recipient_agent_id"]] += 1
        ended = Counter(turn.agent_id for turn in all_turns if turn.subagent_id and turn.status in ENDED)
        unread = Counter(turn.agent_id for turn in all_turns for _ in range(waiting[turn.id]))
        assert not waiting or max(waiting.values()) == 1
        assert ended == unread + read + at_once

    def _check_waits(self, session: Any, open_turns: dict[str, Any]) -> None:
        kept = self.rows(waits)
        begun = {
            row.id
            for row in self.rows(items)
            if row.type in COORDINATION_ITEMS and row.status == "in_progress"
        }
        assert {wait.item_id for wait in kept} == begun
        agents = {turn.agent_id for turn in open_turns.values()}
        assert {wait.agent_id for wait in kept} <= agents
        if kept and session.status != "requires_action":
            assert session.wake_at == min(wait.deadline_us for wait in kept)
        elif not kept:
            assert session.wake_at is None
