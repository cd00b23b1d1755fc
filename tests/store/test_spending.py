"""Counters of model calls: nothing is lost or counted twice, whatever a session's owners do and suffer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, func, select

from perdure.config.sections import LimitSettings
from perdure.harness.limits import before_call, ceilings_of
from perdure.store.accept import accept_once
from perdure.store.beside import charge_beside, reserve_beside
from perdure.store.boundary import Boundary, Failure
from perdure.store.claims import claim
from perdure.store.engine import now_us, open_engine
from perdure.store.handover import hand_back
from perdure.store.migrate import migrate
from perdure.store.sessions import create_session, find_session, resolve_settings
from perdure.store.spending import ModelCall, Tally, read_spending
from perdure.store.steps import Call, Spent, Text, abandon_step, charge_call, commit_step
from perdure.store.tables import model_calls, turns
from perdure.store.tx import Tx
from perdure.store.usage import read_used
from perdure.wire.ids import new_id
from perdure.wire.inputs import EventBatch
from perdure.wire.sessions import SessionCreate
from perdure.wire.usage import TokenUsage

PROJECT = "default"
BODY = {
    "agent": {"model": "m"},
    "environment": {"type": "none"},
    "input": "Hello.",
    "metadata": {"perdure.limit.model_calls_per_session": "6"},
}
LIMIT = 6
MESSAGE = {
    "type": "agent.session.input.message",
    "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "And now?"}]}],
}


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = open_engine(database_url)
    migrate(engine)
    yield engine
    engine.dispose()


@contextmanager
def tx(engine: Engine) -> Iterator[Tx]:
    with engine.begin() as conn:
        if engine.dialect.name == "sqlite":
            conn.exec_driver_sql("BEGIN IMMEDIATE")
        yield Tx(conn, now_us())
        if engine.dialect.name == "sqlite":
            conn.exec_driver_sql("COMMIT")


@dataclass
class Beside:
    """A call beside the steps; `interrupted` once another owner has counted it."""

    id: str
    turn_id: str
    owner: str
    interrupted: bool = False


@dataclass
class World:
    """One session, and what its calls must add up to."""

    engine: Engine
    session_id: str
    boundary: Boundary | None = None
    made: int = 0
    interrupted: int = 0
    claims: int = 0
    usages: list[TokenUsage | None] = field(default_factory=list)
    owner: str = "worker_1"
    beside: list[Beside] = field(default_factory=list)

    def call(self, outcome: str, tokens: int | None) -> Spent:
        usage = None if tokens is None else TokenUsage.of(tokens, 1, cached_tokens=tokens // 2)
        now = now_us()
        call = ModelCall("p", "m", outcome, now, now, usage=usage, assumed=TokenUsage.of(3, 1))
        self.made += 1
        self.usages.append(usage)
        return Spent(usage, 5, 1, (call,))

    def refused(self) -> bool:
        """Whether the ceiling refuses the call that the boundary asks for."""
        boundary = self.boundary
        assert boundary is not None
        assert boundary.turn is not None
        ceilings = ceilings_of(LimitSettings(), boundary.metadata, boundary.limits)
        return before_call(boundary.turn, boundary.spent, ceilings, model="m", currency=None) is not None

    def step(self, action: str, tokens: int | None) -> None:
        boundary = self.boundary
        if boundary is None or boundary.state != "run":
            return
        assert boundary.turn is not None
        if self.refused():
            self._refuse(boundary)
            return
        place = (boundary.lease, boundary.turn.id)
        with tx(self.engine) as inside:
            match action:
                case "answer":
                    spent = self.call("ok", tokens)
                    text = Text("message", {"role": "assistant", "content": [], "phase": None})
                    self.boundary = commit_step(inside, *place, 0, [text], spent, ending="completed")
                case "refused call":
                    spent = self.call("ok", tokens)
                    calls = [Call("f", {}, refusal="No.")]
                    self.boundary = commit_step(inside, *place, 0, calls, spent, ending=None)
                case "broken":
                    spent = self.call("connection_failed", tokens)
                    self.boundary = abandon_step(inside, *place, [], spent, failure=None)
                case "failed":
                    spent = self.call("server_error", None)
                    failure = Failure("server_error", "No.")
                    self.boundary = abandon_step(inside, *place, [], spent, failure=failure)
                case "retried":
                    charge_call(inside, *place, self.call("rate_limit_exceeded", None))

    def _refuse(self, boundary: Boundary) -> None:
        assert boundary.turn is not None
        nothing = Spent(None, 0, 0)
        failure = Failure("usage_limit_exceeded", "No more.")
        with tx(self.engine) as inside:
            self.boundary = abandon_step(
                inside, boundary.lease, boundary.turn.id, [], nothing, failure=failure
            )

    def act(self, action: str, tokens: int | None) -> None:
        match action:
            case "message":
                events = EventBatch.model_validate({"events": [MESSAGE]}).events
                with tx(self.engine) as inside:
                    accept_once(inside, None, self.session_id, PROJECT, events)
            case "claim" | "claim elsewhere":
                # The owner before, if there is one, is dead: what it was doing is broken off.
                dead = self.boundary is not None and self.boundary.state == "run"
                owner = self.owner
                if action == "claim elsewhere":
                    owner = "worker_2" if owner == "worker_1" else "worker_1"
                with tx(self.engine) as inside:
                    found = claim(inside, self.session_id, owner=owner)
                if found is not None:
                    self.owner = owner
                    self.claims += dead
                    self.interrupted += dead
                    self.boundary = found
                    for call in self.beside:
                        if call.owner != owner and not call.interrupted:
                            call.interrupted = True
                            self.interrupted += 1
            case "hand back":
                if self.boundary is not None and self.boundary.state == "run":
                    with tx(self.engine) as inside:
                        hand_back(inside, self.session_id, self.owner)
                    self.boundary = None
            case "begin beside":
                self._begin_beside()
            case "end beside" if self.beside:
                call = self.beside.pop()
                # A call that was counted before tells how it ended after all.
                self.interrupted -= call.interrupted
                spent = self.call("ok", tokens)
                with tx(self.engine) as inside:
                    assert charge_beside(inside, self.session_id, call.turn_id, spent, call.id)
            case "drop beside" if self.beside:
                call = self.beside.pop()
                with tx(self.engine) as inside:
                    charge_beside(inside, self.session_id, call.turn_id, Spent(None, 0, 0), call.id)
            case _:
                self.step(action, tokens)

    def _begin_beside(self) -> None:
        with self.engine.connect() as conn:
            turn_id = (
                conn.execute(
                    select(turns.c.id)
                    .where(turns.c.session_id == self.session_id)
                    .order_by(turns.c.pos.desc())
                )
                .scalars()
                .first()
            )
            assert turn_id is not None
        call = Beside(new_id("mcl"), turn_id, self.owner)
        with tx(self.engine) as inside:
            found = reserve_beside(
                inside, self.session_id, turn_id, call.id, owner=call.owner, provider="p", model="m"
            )
        ceilings = ceilings_of(LimitSettings(), found.metadata, found.limits)
        if before_call(found.turn, found.tally, ceilings, model="m", currency=None) is None:
            self.beside.append(call)
            return
        with tx(self.engine) as inside:
            charge_beside(inside, self.session_id, turn_id, Spent(None, 0, 0), call.id)

    def check(self) -> None:
        with self.engine.connect() as conn:
            session = find_session(conn, self.session_id, PROJECT)
            tally = Tally(**(session.spent or {}))
            listed = conn.execute(
                select(func.count(), func.sum(model_calls.c.input_tokens)).where(
                    model_calls.c.session_id == self.session_id
                )
            ).one()
            used = read_used(conn, self.session_id, PROJECT)
        assert tally.model_calls == tally.calls == listed[0] == self.made + self.interrupted
        assert tally.reserved == (self.boundary is not None and self.boundary.state == "run")
        assert set(tally.beside) == {call.id for call in self.beside if not call.interrupted}
        known = [usage for usage in self.usages if usage is not None]
        assert int(listed[1] or 0) == sum(usage.input_tokens for usage in known)
        assumed = len(self.usages) - len(known)
        assert tally.input_tokens == sum(usage.input_tokens for usage in known) + 3 * assumed
        total = known[0] if known else None
        for usage in known[1:]:
            assert total is not None
            total = total + usage
        shown = [model.usage for model in used.models if model.model == "m" and model.usage is not None]
        assert shown == ([] if total is None else [total])
        assert tally.model_calls <= LIMIT + self.claims


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(
            (
                "answer",
                "refused call",
                "broken",
                "failed",
                "retried",
                "message",
                "claim",
                "claim elsewhere",
                "hand back",
                "begin beside",
                "end beside",
                "drop beside",
            )
        ),
        st.none() | st.integers(1, 1000),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(actions=ACTIONS)
def test_every_call_is_counted_once_and_no_ceiling_is_passed(
    engine: Engine, actions: list[tuple[str, int | None]]
) -> None:
    session_id = new_id("sess")
    body = SessionCreate.model_validate(BODY)
    with tx(engine) as inside:
        name, agent = resolve_settings(inside.conn, PROJECT, body)
        create_session(inside, session_id, PROJECT, body, name, agent)
    world = World(engine, session_id)
    world.act("claim", None)
    world.check()
    for action, tokens in actions:
        before: Any = world.boundary
        world.act(action, tokens)
        if action == "retried" and before is world.boundary and world.boundary is not None:
            # The boundary's own tally is that of its transaction: the owner goes on with the newer one.
            world.boundary = refreshed(engine, world.boundary)
        world.check()


def refreshed(engine: Engine, boundary: Boundary) -> Boundary:
    if boundary.turn is None:
        return boundary
    with engine.connect() as conn:
        found = read_spending(conn, boundary.lease.session_id, boundary.turn.id)
    return replace(boundary, turn=found.turn, spent=found.tally)
