"""A long conversation about orders, and the model that has it: a strict provider that counts every token.

The provider tells in its usage how large each request was, enforces a small window, and writes
summaries when it is asked for one; how well it does that is up to the test.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from tests.providers.answers import Answer, Call, Plan, Text, Usage, answer
from tests.providers.server import KEY, FakeProvider, Recorded

DEADLINE = 60.0
WINDOW = 8192
ASKS_FOR_SUMMARY = "Write that summary now"
NOTE = "this note stands in its place"

LOOKUP: Any = {
    "type": "function",
    "name": "lookup_order",
    "description": "Looks up an order.",
    "parameters": {
        "type": "object",
        "properties": {"order_id": {"type": "string"}},
        "required": ["order_id"],
        "additionalProperties": False,
    },
}

Summarise = Callable[[str], Plan]


def good_summary(_: str) -> Plan:
    return answer(Text("The user runs a shop and asked about orders; everything asked so far is done."))


@dataclass
class Office:
    """A provider on a thread of its own; a context manager.

    `plans` are its next answers, in order, summaries apart; without one it says a sentence. `held`
    makes it wait with a summary until the event is set.
    """

    provider: FakeProvider
    summarise: Summarise = good_summary
    plans: deque[Plan] = field(default_factory=deque)
    summaries: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    asked: threading.Event = field(default_factory=threading.Event)
    held: asyncio.Event | None = None

    def __post_init__(self) -> None:
        self.provider.planner = self._plan
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.run(self.provider.start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.run(self.provider.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(DEADLINE)

    def run(self, work: Any) -> Any:
        """Run a coroutine on the provider's loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(DEADLINE)

    def table(self, **keys: Any) -> str:
        """The provider's table of the settings file, its model called `fake`."""
        known = {"context_window": WINDOW, **keys}
        lines = [f"{key} = {json.dumps(value)}" for key, value in known.items()]
        return "\n".join(
            [
                "[[provider]]",
                'name = "fake"',
                f'protocol = "{self.provider.PROTOCOL}"',
                f'base_url = "{self.provider.base_url}"',
                f'api_key = "{KEY}"',
                'models = ["fake*"]',
                *lines,
            ]
        )

    def look_up(self, order: str, told: str) -> None:
        """Answer the next message with a call, and its result with a text."""
        self.plans += [answer(Call("lookup_order", {"order_id": order})), answer(Text(told))]

    def release(self) -> None:
        assert self.held is not None
        self.loop.call_soon_threadsafe(self.held.set)

    async def _plan(self, recorded: Recorded) -> Plan:
        body = json.dumps(recorded.body, ensure_ascii=False)
        # The bodies are kept as texts: thousands of parsed ones would be large.
        self.provider.requests.clear()
        if ASKS_FOR_SUMMARY in body:
            self.summaries.append(body)
            self.asked.set()
            if self.held is not None:
                await self.held.wait()
            return _measured(self.summarise(body), body)
        self.requests.append(body)
        plan = self.plans.popleft() if self.plans else answer(Text("Noted. " + "All is well. " * 12))
        return _measured(plan, body)


def _measured(plan: Plan, body: str) -> Plan:
    if not isinstance(plan, Answer) or plan.usage != Usage():
        return plan
    usage = Usage(input=max(1, len(body.encode()) // 4), output=30)
    return Answer(plan.outputs, usage, plan.end, plan.failure, plan.pacing, plan.quirks)
