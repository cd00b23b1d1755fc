"""One session with subagents under test, and where it runs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import httpx2
from sqlalchemy import Engine
from tests.conformance.watch import until

from .family_rows import ENDED, Rows, check_always, read_rows, restless
from .family_script import LIMIT
from .observed import get, read_list
from .script import FUNCTIONS

DEADLINE = 30.0
MODEL = "family"

Json = dict[str, Any]
_tags = itertools.count(1)


class Place(Protocol):
    """The processes that run the sessions of a machine. Starting and ending them is up to its rules."""

    gates: Path

    @property
    def engine(self) -> Engine: ...
    @property
    def pids(self) -> set[int]:
        """The processes that can work."""
        ...

    def client(self) -> httpx2.Client: ...
    def start(self) -> None: ...
    def kill(self) -> None: ...
    def terminate(self) -> int: ...
    def stderr(self) -> str: ...


@dataclass
class House:
    """What all sessions of a machine share."""

    place: Place
    client: httpx2.Client
    released: set[str] = field(default_factory=set)

    def release(self, gate: str) -> None:
        (self.place.gates / gate).touch()
        self.released.add(gate)


@dataclass
class Family:
    """`accepted` is what the user has said, in order; `gates` are the tags that were given away."""

    house: House
    id: str = ""
    accepted: list[str] = field(default_factory=list)
    gates: list[str] = field(default_factory=list)
    deleted: bool = False
    log: list[str] = field(default_factory=list)

    @property
    def path(self) -> str:
        return f"/agents/sessions/{self.id}"

    def write(self, text: str) -> str:
        """A text of the user, with a tag of its own."""
        tag = f"t{next(_tags)}"
        self.gates.append(tag)
        word, _, rest = text.partition(" ")
        return f"{word} {tag} {rest}".strip()

    # ---- requests

    def create(self, text: str) -> None:
        body: Json = {
            "agent": {
                "model": MODEL,
                "tools": [FUNCTIONS["weather"]],
                "multi_agent": {"enabled": True, "max_concurrent_subagents": LIMIT},
            },
            "environment": {"type": "none"},
            "input": text,
        }
        response = self.house.client.post("/agents/sessions", json=body)
        assert response.status_code == 201, response.text
        self.id = response.json()["id"]
        self.accepted.append(text)
        self.log.append(f"created with {text!r}")

    def post(self, events: Sequence[str | None]) -> None:
        """Say these texts in one request; None is a cancel."""
        if self.deleted:
            return
        body = {"events": [cancel() if text is None else message(text) for text in events]}
        response = self.house.client.post(f"{self.path}/events", json=body)
        self.log.append(f"{list(events)} -> {response.status_code}")
        assert response.status_code == 202, response.text
        self.accepted += [text for text in events if text is not None]

    def answer(self) -> None:
        """Give the result of what the session asks for, if it still does."""
        if self.deleted:
            return
        for action in get(self.house.client, self.path)["required_actions"]:
            result = {"type": "agent.session.input.tool_result", "success": True, "output": "7"}
            named = {"turn_id": action["turn_id"], "call_id": action["call_id"]}
            body = {"events": [{**result, **named}]}
            response = self.house.client.post(f"{self.path}/events", json=body)
            self.log.append(f"answered {action['call_id']} -> {response.status_code}")
            # A cancel may have been applied meanwhile, but only one that was accepted before.
            assert response.status_code in (202, 409), response.text

    def delete(self) -> None:
        """Delete the session, which is refused exactly while an agent is at work."""
        if self.deleted:
            return
        rows = self.settle()
        response = self.house.client.delete(self.path)
        self.log.append(f"deleted -> {response.status_code}")
        if rows.unfinished and rows.session["status"] != "requires_action":
            assert response.status_code == 409, response.text
        elif rows.unfinished:
            assert response.status_code in (200, 409), response.text
        else:
            assert response.status_code == 200, response.text
        if response.status_code == 200:
            self.deleted = True
            assert self.house.client.get(self.path).status_code == 404

    # ---- looking

    def look(self) -> Rows:
        """Read the session, and hold what is seen against what holds always."""
        rows = read_rows(self.house.place.engine, self.id)
        check_always(rows, self.accepted)
        return rows

    def settle(self) -> Rows:
        """Wait until the session has nothing to do by itself."""
        seen: list[Rows] = []

        def problem() -> str | None:
            seen[:] = [self.look()]
            return restless(seen[0], self.house.released, self.house.place.pids)

        until(problem, lambda found: found is None, DEADLINE, lambda: self.told(seen[0]))
        (rows,) = seen
        self.log.append(f"rests: {[(turn['agent_id'][-4:], turn['status']) for turn in rows.turns]}")
        heard = len(rows.user_texts) + sum(
            row["kind"] == "message" and row["agent_id"] == rows.root for row in rows.inbox
        )
        assert heard == len(self.accepted), f"heard {rows.user_texts} of {self.accepted}"
        return rows

    def inspect(self) -> None:
        """Every route shows the agent that it is about, and nothing of the others."""
        if self.deleted:
            return
        rows, client = self.settle(), self.house.client
        agents = {rows.root: self.path}
        agents |= {each["id"]: f"{self.path}/subagents/{each['id']}" for each in rows.subagents}
        for agent, path in agents.items():
            shown = [item["id"] for item in read_list(client, f"{path}/items")]
            assert shown == [item["id"] for item in rows.items_of(agent)], f"items of {agent}: {shown}"
            found = [(turn["id"], turn["status"]) for turn in read_list(client, f"{path}/turns")]
            assert found == [(turn["id"], turn["status"]) for turn in rows.turns_of(agent)]
        listed = [
            (each["id"], each["name"], each["status"]) for each in read_list(client, f"{self.path}/subagents")
        ]
        assert listed == [(each["id"], each["name"], each["status"]) for each in rows.subagents]

    def end(self) -> None:
        """Let everything go on, and hold the session against what it must have come to; delete it."""
        if self.deleted:
            return
        self.post([None])
        rows = self.settle()
        assert all(turn["status"] in ENDED for turn in rows.turns), self.told(rows)
        self.post([self.write("say")])
        rows = self.settle()
        # The root read all its reports with the last turn; those of nested ones wait for the one above.
        assert [row for row in rows.inbox if row["agent_id"] == rows.root] == [], self.told(rows)
        self.inspect()
        self.delete()
        assert self.deleted

    def told(self, rows: Rows) -> str:
        """Everything that helps to understand a failure."""
        shown = [
            *(f"session {dict(rows.session)}",),
            *(f"turn {dict(row)}" for row in rows.turns),
            *(f"item {dict(row)}" for row in rows.items),
            *(f"inbox {dict(row)}" for row in rows.inbox),
            *(f"wait {dict(row)}" for row in rows.waits),
            *(f"subagent {dict(row)}" for row in rows.subagents),
        ]
        return "\n".join([*self.log, *shown, self.house.place.stderr()[-3000:]])


def message(text: str) -> Json:
    user = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    return {"type": "agent.session.input.message", "input": [user]}


def cancel() -> Json:
    return {"type": "agent.session.input.cancel"}
