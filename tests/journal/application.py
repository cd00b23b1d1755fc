"""An application in a process of its own, with a tool whose every effect is a line in a file.

    start|resume BASE_URL API_KEY JOURNAL EFFECTS POLICY [SESSION_ID]

`start` creates a session with a ledger and follows it; `resume` goes on with one that it knows nothing about
but its id. `PERDURE_FAULT` may end it anywhere; besides the points of the SDK there are `effect:before` and
`effect:after`, inside of the function.

As a program it reads such words as JSON, with the fault in front of them (null for none), forks a process for
each line, and prints how that ended: imports, the longest part of a start, are made once.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI

from perdure.sdk import crash_points
from perdure.sdk.calls import CallPair, ToolResult
from perdure.sdk.crash_points import reach
from perdure.sdk.journal import Fresh, Journal, Unknown
from perdure.sdk.ledger import LEDGER_METADATA, Ledger, Pinned
from perdure.sdk.ledger_edit import LedgerEdit
from perdure.sdk.run_once import Retry, deliver, run_once

MODEL = "charger"
ORDER = "A-1042"
SCRIPT = r"""
[[rule]]
when = { newest = "result", result_failed = true }
answer = [{ text = "Not charged: {result}" }]

[[rule]]
when = { newest = "result" }
answer = [{ text = "Charged {result.order_id}." }]

[[rule]]
when = { user_matches = '(?P<order_id>[A-Z]-\d{4})' }
answer = [{ call = "charge", arguments = { order_id = "{order_id}" } }]
"""
CHARGE: Any = {
    "type": "function",
    "name": "charge",
    "description": "Charges an order.",
    "parameters": {
        "type": "object",
        "properties": {"order_id": {"type": "string"}},
        "required": ["order_id"],
        "additionalProperties": False,
    },
}


class OrderLedger(Ledger):
    """The state of an order."""

    order_id: Pinned[str]
    status: str = "new"


class Application:
    """Answers what its session owes until nothing is owed and it rests."""

    def __init__(self, client: AsyncOpenAI, journal: Journal, effects: Path, policy: str) -> None:
        self.client = client
        self.journal = journal
        self.effects = effects
        self.policy = policy

    async def start(self) -> str:
        record = self.journal.ledgers.create(OrderLedger(order_id=ORDER))
        session = await self.client.beta.agents.sessions.create(
            agent={"model": MODEL, "tools": [CHARGE]},
            environment={"type": "none"},
            input=f"Charge {ORDER}.",
            metadata={LEDGER_METADATA: record.key},
        )
        self.journal.ledgers.bind(record.key, session.id)
        print(session.id, flush=True)
        return session.id

    async def follow(self, session_id: str) -> None:
        sessions = self.client.beta.agents.sessions
        session = await sessions.retrieve(session_id)
        self.journal.ledgers.adopt(session_id, session.metadata)
        # Any event may mean that something is owed; what is owed, only the session says.
        async with await sessions.events.stream(session_id) as stream:
            session = await sessions.retrieve(session_id)
            while session.status not in ("idle", "failed"):
                for action in session.required_actions:
                    await self.answer(session_id, action)
                await anext(aiter(stream))
                session = await sessions.retrieve(session_id)
        turns = [turn async for turn in sessions.turns.list(session_id)]
        items = [item async for item in sessions.items.list(session_id)]
        answered = [item.call_id for item in items if item.type == "function_call_output"]
        self.journal.turn_ended(session_id, turns[0].id, answered=answered)

    async def answer(self, session_id: str, action: Any) -> None:
        pair = CallPair(session_id, action.turn_id, action.call_id)
        edit = self.journal.ledgers.edit(session_id, OrderLedger)
        assert edit is not None

        async def charge(_: Fresh) -> ToolResult:
            reach("effect:before")
            descriptor = os.open(self.effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            os.write(descriptor, f"{action.call_id}\n".encode())
            os.close(descriptor)
            reach("effect:after")
            return self.charged(action, edit)

        def look_up(_: Unknown) -> ToolResult | Retry:
            return self.charged(action, edit) if action.call_id in self.lines() else Retry()

        finished = await run_once(
            self.journal.aio, pair, action.name, action.arguments, charge,
            on_unknown="fail" if self.policy == "fail" else look_up, ledger=edit,
        )  # fmt: skip

        async def send(event: Any) -> None:
            await self.client.beta.agents.sessions.events.create(session_id, events=[event])

        await deliver(self.journal.aio, finished, send)

    def charged(self, action: Any, edit: LedgerEdit[OrderLedger]) -> ToolResult:
        edit.update(status="charged")
        return ToolResult(True, f'{{"order_id":"{action.arguments["order_id"]}"}}')

    def lines(self) -> list[str]:
        return self.effects.read_text().split() if self.effects.exists() else []


async def main(mode: str, url: str, key: str, journal: str, effects: str, policy: str, *known: str) -> None:
    with Journal.open(journal) as opened:
        async with AsyncOpenAI(base_url=url, api_key=key) as client:
            application = Application(client, opened, Path(effects), policy)
            session_id = await application.start() if mode == "start" else known[0]
            await application.follow(session_id)


def run_forked(fault: str | None, words: list[str]) -> tuple[int, str]:
    """Run the application in a child; returns its exit status and what it printed."""
    output, inlet = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.dup2(inlet, 1)
            crash_points.arm(fault)
            asyncio.run(main(*words))
            status = 0
        except BaseException:  # noqa: BLE001 - a child must not go on as its parent
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(status)
    os.close(inlet)
    with os.fdopen(output) as printed:
        text = printed.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text.strip()


if __name__ == "__main__":
    for line in sys.stdin:
        fault, *words = json.loads(line)
        print(json.dumps(run_forked(fault, words)), flush=True)
