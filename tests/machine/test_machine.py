"""Sessions live at random, and nothing that the server shows may differ from the rules.

The rules are in `rules.py`: plain Python that predicts every answer, turn, item and event. Where
requests race with the server's own progress, it predicts all that may be.
"""

from __future__ import annotations

import random
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.server import ServerProcess

from .life import Life, Service, cancel, say, wait_for
from .rules import Result, World
from .script import (
    BREAKERS,
    CALLERS,
    FUNCTIONS,
    HOLDERS,
    MODELS,
    SAYINGS,
)
from .streams import Follower, Reader

SLOTS = 3
HASTY = 3
"""Requests to one session without waiting for it in between."""
RESTARTS = 2
"""Restarts in one example: they take the most time."""
TIMEOUT = 30.0

slots = st.integers(0, SLOTS - 1)
words = st.one_of(
    st.sampled_from(SAYINGS), st.sampled_from(CALLERS), st.sampled_from(HOLDERS), st.sampled_from(BREAKERS)
)
patience = st.sampled_from((True, True, True, False))
results = st.sampled_from(
    (
        Result(True, "7"),
        Result(True, "8"),
        Result(True),
        Result(False, None, "No."),
        Result(False, "9", "No."),
    )
)
aims = st.sampled_from(("call",) * 8 + ("unknown", "item", "turn", "wrong turn"))
answers = st.tuples(st.integers(0, 9), results, aims)
drafts = st.one_of(
    st.lists(words, min_size=1, max_size=3).map(lambda texts: ("say", texts)),
    st.just(("cancel", None)),
    answers.map(lambda answer: ("answer", answer)),
)
batches = st.lists(drafts, max_size=4)
updates = st.fixed_dictionaries(
    {},
    optional={
        "model": st.sampled_from(MODELS),
        "tools": st.sampled_from((("weather", "clock", "report"), ("weather",), ("clock", "report"), ())),
        "metadata": st.sampled_from(((), (("team", "blue"),), (("a", "1"), ("b", "2")))),
    },
)


class SessionMachine(RuleBasedStateMachine):
    """`server` is set by the test that runs the machine."""

    server: ServerProcess
    failures = 0

    def __init__(self) -> None:
        super().__init__()
        self.lives: list[Life | None] = [None] * SLOTS
        self.past: list[Life] = []
        self.broken = True
        self.keys = self.restarts = 0
        self.service = Service(*self.connect(), self.server.config.parent / "gates")

    def connect(self) -> tuple[httpx2.Client, httpx2.Client]:
        headers = {"Authorization": f"Bearer {self.server.api_key}", "OpenAI-Beta": "agents=v1"}
        limits = httpx2.Limits(max_connections=None)
        client, root = (
            httpx2.Client(base_url=url, headers=headers, timeout=TIMEOUT, limits=limits)
            for url in (self.server.base_url, self.server.url)
        )
        return client, root

    def life(self, slot: int) -> Life:
        found = self.lives[slot]
        return found if found is not None else self.begin(slot, "say", stream=False)

    def begin(self, slot: int, word: str, *, stream: bool) -> Life:
        world = World(MODELS[0], tuple(FUNCTIONS))
        life = Life(self.service, "", [world])
        text = life.write(word)
        world.create(text)
        body: dict[str, Any] = {
            "agent": {
                "model": MODELS[0],
                "tools": list(FUNCTIONS.values()),
                "reasoning": {"summary": "auto"},
            },
            "environment": {"type": "none"},
            "input": text,
        }
        key = {"Idempotency-Key": self.new_key()}
        if stream:
            body["stream"] = True
        life.created_by = (key["Idempotency-Key"], body)
        if stream:
            reader = Reader(self.service.client, "POST", "/agents/sessions", body, **key)
            assert reader.status == 201
            wait_for(lambda: bool(reader.events) or reader.ended, "the creation stream says nothing")
            created = reader.events[0]
            assert created["type"] == "agent.session.created"
            life.id = created["session"]["id"]
            life.creation = Follower(reader, None)
        else:
            made = [self.service.client.post("/agents/sessions", json=body, headers=key) for _ in range(2)]
            assert [response.status_code for response in made] == [201, 201], made[0].text
            first, again = (response.json() for response in made)
            assert first["id"] == again["id"]
            life.id = first["id"]
        self.lives[slot] = life
        life.log.append(f"created with {text!r}" + (" and a stream" if stream else ""))
        life.witness = life.follow()
        return life

    def new_key(self) -> str:
        self.keys += 1
        return f"key-{random.SystemRandom().getrandbits(64):x}-{self.keys}"

    def done(self, life: Life, settle: bool) -> None:
        if settle or life.hasty >= HASTY:
            life.settle()
        self.broken = False

    # ---- rules

    @initialize(word=words, stream=st.booleans())
    def first(self, word: str, stream: bool) -> None:
        self.done(self.begin(0, word, stream=stream), True)

    @rule(slot=slots, word=words, stream=st.booleans(), settle=patience)
    def create(self, slot: int, word: str, stream: bool, settle: bool) -> None:
        self.broken = True
        before = self.lives[slot]
        if before is not None:
            self.past.append(before)
        self.done(self.begin(slot, word, stream=stream), settle)

    @rule(slot=slots, word=words, settle=patience)
    def message(self, slot: int, word: str, settle: bool) -> None:
        self.post(slot, [("say", [word])], True, settle)

    @rule(slot=slots, texts=st.lists(words, min_size=2, max_size=3), settle=patience)
    def messages(self, slot: int, texts: list[str], settle: bool) -> None:
        self.post(slot, [("say", texts)], False, settle)

    @rule(slot=slots, answer=answers, settle=patience)
    def answer(self, slot: int, answer: Any, settle: bool) -> None:
        self.post(slot, [("answer", answer)], False, settle)

    @rule(slot=slots, which=st.integers(0, 2), result=results, settle=patience)
    def answer_open(self, slot: int, which: int, result: Result, settle: bool) -> None:
        life = self.life(slot)
        calls = life.world.open_calls if life.rested else ()
        chosen = calls[which % len(calls)] if calls else which
        self.post(slot, [("answer", (chosen, result, "call"))], True, settle)

    @rule(slot=slots, which=st.integers(0, 2), other=st.sampled_from((None, Result(True, "8"), Result(True))))
    def answer_again(self, slot: int, which: int, other: Result | None) -> None:
        """The accepted result of a call once more, or a different one."""
        life = self.life(slot)
        given = [(n, call.result) for n, call in enumerate(life.world.calls) if call.result is not None]
        if given and life.rested:
            number, result = given[which % len(given)]
            self.post(slot, [("answer", (number, other or result, "call"))], True, True)

    @rule(slot=slots, settle=patience)
    def cancel(self, slot: int, settle: bool) -> None:
        self.post(slot, [("cancel", None)], False, settle)

    @rule(slot=slots, batch=batches, keyed=st.booleans(), settle=patience)
    def batch(self, slot: int, batch: list[Any], keyed: bool, settle: bool) -> None:
        self.post(slot, batch, keyed, settle)

    @rule(slot=slots, first=batches, second=batches, settle=patience)
    def two_at_once(self, slot: int, first: list[Any], second: list[Any], settle: bool) -> None:
        self.broken = True
        life = self.life(slot)
        life.settle()
        life.race(self.prepare(life, first), self.prepare(life, second), self.send_both)
        self.done(life, settle)

    @rule(slot=slots)
    def repeat(self, slot: int) -> None:
        self.broken = True
        life = self.life(slot)
        if life.keys and not life.deleted:
            life.repeat()
        self.done(life, False)

    @rule(slot=slots)
    def recreate(self, slot: int) -> None:
        self.broken = True
        life = self.life(slot)
        life.recreate()
        self.done(life, False)

    @rule(slot=slots, which=st.integers(0, 3), settle=patience)
    def release(self, slot: int, which: int, settle: bool) -> None:
        self.broken = True
        life = self.life(slot)
        closed = [gate for gate in life.gates if gate not in self.service.released]
        if closed:
            gate = closed[which % len(closed)]
            life.log.append(f"gate {gate} opens")
            self.service.release(gate)
            life.rested = False
            life.hasty += 1
        self.done(life, settle)

    @rule(slot=slots, changes=updates, settle=patience)
    def update(self, slot: int, changes: dict[str, Any], settle: bool) -> None:
        self.broken = True
        life = self.life(slot)
        life.update(changes)
        self.done(life, settle)

    @rule(slot=slots)
    def delete(self, slot: int) -> None:
        self.broken = True
        life = self.life(slot)
        life.delete()
        self.done(life, False)

    @rule(slot=slots, settle=patience)
    def look_in(self, slot: int, settle: bool) -> None:
        """A second reader comes, or comes back."""
        self.broken = True
        life = self.life(slot)
        if not life.deleted:
            if life.visitor is not None:
                life.visitor.reader.close()
            life.visitor = life.follow()
            life.log.append("a visitor")
            life.rested = False
        self.done(life, settle)

    @rule(slot=slots)
    def inspect(self, slot: int) -> None:
        self.broken = True
        self.life(slot).inspect()
        self.broken = False

    @precondition(lambda self: self.restarts < RESTARTS)
    @rule(kill=st.booleans(), settle=patience)
    def restart(self, kill: bool, settle: bool) -> None:
        self.broken = True
        living = [life for life in (*self.lives, *self.past) if life is not None and not life.deleted]
        followers = [each.reader for life in living for each in life.followers]
        self.restarts += 1
        if kill:
            self.server.kill()
        else:
            assert self.server.terminate() == 0
            for reader in followers:
                reader.close()
                assert reader.error is None, f"a stream broke at the end: {reader.error!r}"
        for life in living:
            life.log.append("killed" if kill else "stopped")
            life.close()
            life.crash()
        self.service.client.close()
        self.service.root.close()
        self.server.start()
        self.service.client, self.service.root = self.connect()
        for life in living:
            life.witness = life.follow()
        for life in living:
            self.done(life, settle)

    # ---- shared

    def post(self, slot: int, batch: list[Any], keyed: bool, settle: bool) -> None:
        self.broken = True
        life = self.life(slot)
        inputs, body = self.prepare(life, batch)
        life.post(inputs, body, self.new_key() if keyed else None)
        self.done(life, settle)

    def prepare(self, life: Life, batch: list[Any]) -> tuple[list[Any], dict[str, Any]]:
        pairs: list[tuple[Any, Any]] = []
        for kind, what in batch:
            match kind:
                case "say":
                    pairs.append(say([life.write(word) for word in what]))
                case "cancel":
                    pairs.append(cancel())
                case _:
                    pairs.append(life.answer(*what))
        return [event for event, _ in pairs], {"events": [body for _, body in pairs]}

    def send_both(self, path: str, *bodies: Any) -> list[httpx2.Response]:
        with ThreadPoolExecutor(len(bodies)) as pool:
            return list(pool.map(lambda body: self.service.client.post(path, json=body), bodies))

    def tell(self, living: list[Life]) -> None:
        """What was done, at the first failure: a failure by a race may not come again."""
        type(self).failures += 1
        if type(self).failures == 1:
            print(*traceback.format_exception_only(sys.exception()))
            for life in living:
                print(f"--- {life.id}", *life.log, sep="\n")

    def teardown(self) -> None:
        living = [life for life in (*self.lives, *self.past) if life is not None]
        try:
            for life in living:
                for gate in life.gates:
                    self.service.release(gate)
                life.rested = False
            if not self.broken:
                self.broken = True
                for life in living:
                    life.inspect()
                self.broken = False
        finally:
            if self.broken:
                self.tell(living)
            for life in living:
                life.close()
            self.service.client.close()
            self.service.root.close()


def test_sessions_live_by_the_rules(machine_server: ServerProcess, request: pytest.FixtureRequest) -> None:
    given = request.config.getoption("--hypothesis-seed")
    chosen = random.SystemRandom().getrandbits(32) if given in (None, "random") else int(given)
    long = request.config.getoption("--long")
    print(f"reproduce with --hypothesis-seed={chosen}" + (" --long" if long else ""))

    @seed(chosen)
    class Machine(SessionMachine):
        server = machine_server

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=150 if long else 12,
            stateful_step_count=40 if long else 15,
            deadline=None,
            database=None,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate, Phase.shrink) if long else (Phase.generate,),
            print_blob=False,
        ),
    )
    assert "Traceback" not in machine_server.stderr(), machine_server.stderr()
