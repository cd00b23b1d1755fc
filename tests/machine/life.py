"""One session under test: the worlds it may be in, its readers, and what the test knows of it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from .observed import Observed, difference, get, kind_of, observe, read_list, user_texts
from .rules import ENDED, Answer, Cancel, Input, Message, Reply, Result, World, reachable, settled
from .script import FUNCTIONS, HOLDERS
from .streams import Follower, Reader, check_session, expected_snapshot, is_told, numbered, told_again

DEADLINE = 30.0
STUCK = 8.0
"""A session that is not where it must be, and does not change for this many seconds, will not get there."""
PAUSE = 0.005

Json = dict[str, Any]
Batch = tuple[Sequence[Input], Json]
"""Input as the rules know it, and as it is sent."""
_tags = itertools.count(1)


@dataclass
class Service:
    """The server as the lives see it; `client` and `root` change with every restart."""

    client: httpx2.Client
    root: httpx2.Client
    gates: Path
    released: set[str] = field(default_factory=set)

    def release(self, gate: str) -> None:
        (self.gates / gate).touch()
        self.released.add(gate)


@dataclass
class Life:
    """See the module's text. `seen` is what was read when the session last was at rest."""

    service: Service
    id: str
    worlds: list[World]
    seen: Observed | None = None
    rested: bool = False
    hasty: int = 0
    gates: list[str] = field(default_factory=list)
    keys: list[tuple[str, Json]] = field(default_factory=list)
    creation: Follower | None = None
    witness: Follower | None = None
    visitor: Follower | None = None
    created_by: tuple[str, Json] | None = None
    log: list[str] = field(default_factory=list)

    @property
    def path(self) -> str:
        return f"/agents/sessions/{self.id}"

    @property
    def deleted(self) -> bool:
        return all(world.deleted for world in self.worlds)

    @property
    def named_followers(self) -> dict[str, Follower]:
        each = {"creation": self.creation, "witness": self.witness, "visitor": self.visitor}
        return {name: follower for name, follower in each.items() if follower is not None}

    @property
    def followers(self) -> list[Follower]:
        return list(self.named_followers.values())

    @property
    def world(self) -> World:
        return self.worlds[0]

    # ---- requests

    def write(self, text: str) -> str:
        """A message's text with a tag of its own."""
        tag = f"t{next(_tags)}"
        if text in HOLDERS:
            self.gates.append(tag)
        return f"{text} {tag}"

    def act(
        self,
        send: Callable[[], httpx2.Response],
        predict: Callable[[World], Reply | None],
        check: Callable[[httpx2.Response], None] = lambda response: None,
    ) -> Reply:
        """Send a request and keep the worlds that answer it as the server did.

        predict: changes a world as the request does, and returns the answer; None when that depends
        on progress that the server waits for.
        """
        candidates = reachable(self.worlds, self.service.released)
        response = send()
        found = reply_of(response)
        request = response.request
        self.log.append(f"{request.method} {request.content.decode()} -> {found}")
        outcomes: list[tuple[Reply, World]] = []
        for world in candidates:
            after = world.copy()
            answer = predict(after)
            if answer is None:
                continue
            outcomes.append((answer, after if answer.status < 400 else world))
        self.worlds = distinct(world for answer, world in outcomes if answer == found)
        expected = {answer for answer, _ in outcomes}
        assert self.worlds, f"answered {found} ({response.text}), expected one of {expected}"
        check(response)
        self.rested = False
        self.hasty += 1
        return found

    def post(self, batch: Sequence[Input], body: Json, key: str | None = None) -> Reply:
        headers = {} if key is None else {"Idempotency-Key": key}
        found = self.act(
            lambda: self.service.client.post(f"{self.path}/events", json=body, headers=headers),
            lambda world: world.post(batch),
            lambda response: _check_unknown_call(response, batch, body),
        )
        if key is not None and found.status == 202:
            self.keys.append((key, body))
        return found

    def repeat(self) -> None:
        """The newest keyed request again: no effect; and with another body: a conflict."""
        key, body = self.keys[-1]
        headers = {"Idempotency-Key": key}
        again = self.service.client.post(f"{self.path}/events", json=body, headers=headers)
        assert again.status_code == 202, again.text
        other = {"events": [*body["events"], {"type": "agent.session.input.cancel"}]}
        refused = self.service.client.post(f"{self.path}/events", json=other, headers=headers)
        assert reply_of(refused) == Reply(409, "idempotency_conflict"), refused.text

    def recreate(self) -> None:
        """The creation again under its key: the same session, and what its first turn was."""
        assert self.created_by is not None
        key, body = self.created_by
        headers = {"Idempotency-Key": key}
        if self.deleted or not body.get("stream"):
            response = self.service.client.post("/agents/sessions", json=body, headers=headers)
            if self.deleted:
                assert response.status_code == 404, response.text
                return
            assert response.status_code == 201, response.text
            assert response.json()["id"] == self.id
            return
        self.settle()
        seen, world = self.seen, self.world
        assert seen is not None
        reader = Reader(self.service.client, "POST", "/agents/sessions", body, **headers)
        if world.turns[0].status not in ENDED:
            wait_for(lambda: len(reader.events) >= 2, "the repeated creation tells nothing")
            reader.close()
            said = [numbered(event, seen) for event in reader.events[:2]]
            assert [what[:2] for what in said] == [("session", "created"), ("turn", "created")], said
            return
        wait_for(lambda: reader.ended, "the repeated creation does not end")
        assert reader.error is None, reader.error
        said = [numbered(event, seen) for event in reader.events]
        assert said == told_again(world), f"told again: {said}\nexpected: {told_again(world)}"
        for event in reader.events:
            if "item" in event:
                assert event["item"] == seen.items[seen.item_number[event["item"]["id"]]]
        check_session(reader.events[-1]["session"])

    def race(
        self, first: tuple[Sequence[Input], Json], second: tuple[Sequence[Input], Json], send: Any
    ) -> None:
        """Two requests at once: the worlds of both orders."""
        candidates = reachable(self.worlds, self.service.released)
        responses = send(f"{self.path}/events", first[1], second[1])
        found = [reply_of(response) for response in responses]
        self.log.append(f"at once: {first[1]} -> {found[0]}, {second[1]} -> {found[1]}")
        batches = (first[0], second[0])
        worlds: list[World] = []
        for order in ((0, 1), (1, 0)):
            states = candidates
            for which in order:
                after = []
                for world in reachable(states, self.service.released):
                    changed = world.copy()
                    if changed.post(batches[which]) == found[which]:
                        after.append(changed if found[which].status == 202 else world)
                states = distinct(after)
            worlds += states
        self.worlds = distinct(worlds)
        assert self.worlds, f"answered {found}: {[response.text for response in responses]}"
        self.rested = False
        self.hasty += 1

    def update(self, changes: Json) -> None:
        body: Json = {}
        if "model" in changes:
            body.setdefault("agent", {})["model"] = changes["model"]
        if "tools" in changes:
            body.setdefault("agent", {})["tools"] = [FUNCTIONS[name] for name in changes["tools"]]
        if "metadata" in changes:
            body["metadata"] = dict(changes["metadata"])

        def check(response: httpx2.Response) -> None:
            if response.status_code == 200:
                check_session(response.json())

        self.act(
            lambda: self.service.client.post(self.path, json=body), lambda world: world.update(changes), check
        )

    def delete(self) -> Reply:
        found = self.act(
            lambda: self.service.client.delete(self.path),
            lambda world: world.delete(),
        )
        if self.deleted:
            for follower in self.followers:
                wait_for(lambda f=follower: f.reader.ended, "a stream of a deleted session is still open")  # type: ignore[misc]
                follower.take()
            self.creation = self.witness = self.visitor = None
            self._check_gone()
        return found

    def _check_gone(self) -> None:
        for path in ("", "/turns", "/items", "/events"):
            response = self.service.client.get(f"{self.path}{path}")
            assert reply_of(response) == Reply(404, "not_found_error"), response.text

    def crash(self) -> None:
        """The process has ended, wherever it was."""
        after = [world.copy() for world in reachable(self.worlds, self.service.released)]
        for world in after:
            world.crash()
        self.worlds = distinct(after)
        self.rested = False

    # ---- readers

    def follow(self) -> Follower:
        """A new reader by the documented procedure: open the stream, then read the state."""
        starts_at, snapshot = None, None
        if self.rested:
            lengths = {len(world.said) for world in self.worlds}
            starts_at = lengths.pop() if len(lengths) == 1 else None
            snapshot = expected_snapshot(self.world)
        reader = Reader(self.service.client, "GET", f"{self.path}/events")
        return Follower(reader, observe(self.service.client, self.id), starts_at, snapshot)

    def close(self) -> None:
        for follower in self.followers:
            follower.reader.close()
        self.creation = self.witness = self.visitor = None

    # ---- rest

    def settle(self) -> None:
        """Wait until the server has nothing to do, and hold everything it shows against the worlds."""
        if self.deleted or self.rested:
            return
        candidates = settled(self.worlds, self.service.released)
        deadline = time.monotonic() + DEADLINE
        changed_at, before = time.monotonic(), None
        while True:
            seen = observe(self.service.client, self.id)
            self.check_always(seen)
            problems = [self._difference(world, seen) for world in candidates]
            matching = [w for w, problem in zip(candidates, problems, strict=True) if problem is None]
            if matching:
                break
            now = time.monotonic()
            state = (seen, [len(follower.reader.events) for follower in self.followers])
            if state != before:
                changed_at, before = now, state
            stuck = now - changed_at > STUCK or now > deadline
            assert not stuck, _report(candidates, [p or "" for p in problems], seen)
            time.sleep(PAUSE)
        self.worlds, self.seen, self.rested, self.hasty = matching, seen, True, 0
        self.log.append(f"rests: {seen.session['status']}")
        for follower in self.followers:
            if follower.starts_at is None and follower.snapshot is None:
                self._pin(follower, seen)
        if self.creation is not None and self.creation.reader.ended:
            self.creation = None

    def _difference(self, world: World, seen: Observed) -> str | None:
        problem = difference(world, seen)
        if problem is not None:
            return problem
        for name, follower in self.named_followers.items():
            follower.take()
            problem = follower.difference(world, seen)
            if problem is not None:
                return f"{name}: {problem}"
        return None

    def _pin(self, follower: Follower, seen: Observed) -> None:
        """From now on it is known where the stream began."""
        lengths = {len(world.said) for world in self.worlds}
        if len(lengths) == 1:
            said = follower.said(seen)
            assert said is not None
            follower.snapshot, follower.starts_at = said, lengths.pop()

    def check_always(self, seen: Observed) -> None:
        """What holds at any moment, whatever the server is doing."""
        check_session(seen.session)
        texts = user_texts(seen.items)
        accepted = {world.accepted for world in self.worlds}
        assert any(tuple(texts) == each[: len(texts)] for each in accepted), (
            f"user messages {texts}, accepted {accepted}"
        )
        if seen.session["status"] == "idle":
            # Turns and items were read later: an idle session has applied all it accepted.
            assert any(tuple(texts) == each for each in accepted), f"idle with {texts} of {accepted}"
        running = [turn for turn in seen.turns if turn["status"] in ("queued", "in_progress", "waiting")]
        assert len(running) <= 1, seen.turns
        assert running in ([], seen.turns[-1:]), seen.turns

    def inspect(self) -> None:
        """Every other way to read the session shows the same."""
        if self.deleted:
            self._check_gone()
            return
        self.settle()
        seen, client = self.seen, self.service.client
        assert seen is not None
        for name, all_of in (("turns", seen.turns), ("items", seen.items)):
            mirrored = read_list(client, f"{self.path}/{name}", "desc", 3)
            assert mirrored == all_of[::-1], f"{name}: {mirrored} is not the reverse of {all_of}"
        for turn in seen.turns:
            path = f"{self.path}/turns/{turn['id']}"
            assert get(client, path) == turn
            own = [item for item in seen.items if item["turn_id"] == turn["id"]]
            assert read_list(client, f"{path}/items") == own
        listed = [
            each for each in get(client, "/agents/sessions", limit=100)["data"] if each["id"] == self.id
        ]
        assert listed in ([], [seen.session])
        self._check_stored(seen)

    def _check_stored(self, seen: Observed) -> None:
        """The stored events, from the session's creation on and through every restart."""
        events: list[Json] = []
        after: Json = {}
        while True:
            response = self.service.root.get(
                f"/perdure/v1/sessions/{self.id}/events", params={"limit": 50, **after}
            )
            assert response.status_code == 200, response.text
            page = response.json()
            events += page["data"]
            if not page["has_more"]:
                break
            after = {"after": page["last_id"]}
        said = tuple(numbered(event, seen) for event in events if is_told(event))
        expected = {world.said for world in self.worlds}
        assert said in expected, f"stored: {said}\nexpected: {expected}"

    # ---- results

    def answer(self, which: int, result: Result, aim: str) -> tuple[Answer, Json]:
        """A tool result for one of the known calls, or with ids that are wrong."""
        calls = self.seen.calls if self.seen is not None else []
        content = {"success": result.success, "output": result.output, "error": result.error}
        event: Json = {"type": "agent.session.input.tool_result", **content}
        event = {name: value for name, value in event.items() if value is not None}
        if not calls or aim == "unknown":
            wrong = {"turn_id": "turn_unknown", "call_id": "call_unknown"}
            return Answer(result, None, "unknown"), {**event, **wrong}
        assert self.seen is not None
        number = which % len(calls)
        call = calls[number]
        event.update(turn_id=call["turn_id"], call_id=call["call_id"])
        match aim:
            case "item":
                return Answer(result, number, "item"), {**event, "call_id": call["id"]}
            case "turn":
                return Answer(result, number, "turn"), {**event, "call_id": call["turn_id"]}
            case "wrong turn":
                return Answer(result, number, "wrong turn"), {**event, "turn_id": "turn_other"}
            case _:
                return Answer(result, number), event


def message(texts: Sequence[str]) -> Json:
    content = [[{"type": "input_text", "text": text}] for text in texts]
    return {
        "type": "agent.session.input.message",
        "input": [{"type": "message", "role": "user", "content": each} for each in content],
    }


def cancel() -> tuple[Cancel, Json]:
    return Cancel(), {"type": "agent.session.input.cancel"}


def say(texts: Sequence[str]) -> tuple[Message, Json]:
    return Message(tuple(texts)), message(texts)


def reply_of(response: httpx2.Response) -> Reply:
    if response.status_code < 400:
        if response.status_code == 202:
            assert response.content == b""
        return Reply(response.status_code)
    error = response.json()["error"]
    assert set(error) == {"message", "type", "code", "param"}
    if response.status_code == 409:
        assert response.headers["x-should-retry"] == "false"
    return Reply(response.status_code, error["code"], error["param"])


def _check_unknown_call(response: httpx2.Response, batch: Sequence[Input], body: Json) -> None:
    if response.status_code != 400:
        return
    error = response.json()["error"]
    index = int(error["param"].split("[")[1].split("]")[0])
    event = batch[index]
    assert isinstance(event, Answer)
    call_id = body["events"][index]["call_id"]
    exact = error["message"] == f"Unknown pending tool call: {call_id}"
    assert exact == (event.refused == "unknown"), error
    assert call_id in error["message"], error


def distinct(worlds: Iterable[World]) -> list[World]:
    return list({world.key: world for world in worlds}.values())


def wait_for(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(PAUSE)


def _report(worlds: list[World], problems: list[str], seen: Observed) -> str:
    shown = "\n- ".join(dict.fromkeys(problems))
    lines = [f"nothing of what may be (worlds: {len(worlds)}) is what is:\n- {shown}"]
    lines.append(f"session: {seen.session['status']}, actions {seen.session['required_actions']}")
    lines += [f"turn {n}: {turn['status']} {turn['error'] or ''}" for n, turn in enumerate(seen.turns)]
    for number, item in enumerate(seen.items):
        turn = seen.turn_number.get(item["turn_id"])
        text = item.get("content") or item.get("name") or item.get("output") or item.get("error") or ""
        lines.append(f"item {number} (turn {turn}): {kind_of(item)} {item.get('status')} {text}")
    lines += [f"accepted and not applied: {inbox}" for inbox in {world.inbox for world in worlds}]
    return "\n".join(lines)
