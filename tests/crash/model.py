"""The model of the crash tests: a strict provider whose answers depend on nothing but the request.

So a step that is repeated after a crash is answered alike, and every request after it is checked as the
real provider checks it. The provider runs in the test's process and outlives the servers.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from tests.providers.answers import Answer, Call, Refusal, Text, Thought, answer
from tests.providers.responses import ResponsesProvider
from tests.providers.server import KEY, Recorded, text_of

MODEL = "crash-test"
DEADLINE = 60.0
STEERING = "Take Rome along, too."
LATE = "has arrived"
STORY = "".join(f"word {number}, " for number in range(2000))
ASKED = "I have asked the surveyor, who is out on the river and will answer when he is back in his office."
"""Said so slowly that a part of it is saved before its end."""
STEPS = {"Plan": 3, "Ask": 2, "late": 1, "Tell": 0, "Thanks": 1}
"""Model calls that are charged to a turn, by the word its message begins with."""


def provider_table(base_url: str) -> str:
    """The settings of a server that uses the provider at this address."""
    return f"""
[[provider]]
name = "crash-test"
protocol = "responses"
base_url = "{base_url}"
api_key = "{KEY}"
models = ["{MODEL}"]
"""


@dataclass
class Hold:
    """Holds the model calls of one test: `reached` once one waits, `release` lets them all go on."""

    loop: asyncio.AbstractEventLoop
    reached: threading.Event = field(default_factory=threading.Event)
    opened: asyncio.Event = field(default_factory=asyncio.Event)

    def release(self) -> None:
        self.loop.call_soon_threadsafe(self.opened.set)


class Model:
    """Runs the provider on a thread; a context manager."""

    def __init__(self) -> None:
        self.provider = ResponsesProvider(planner=self._plan)
        self.hold: Hold
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.renew()

    def renew(self) -> None:
        """Forget what earlier tests have left."""
        self.provider.requests.clear()
        self.provider.violations.clear()
        self.hold = Hold(self._loop)
        self._busy = True

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.provider.start(), self._loop).result(DEADLINE)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self.provider.stop(), self._loop).result(DEADLINE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE)

    def _plan(self, recorded: Recorded) -> Answer | Refusal:
        entries: list[dict[str, Any]] = recorded.body["input"]
        topics = [n for n, entry in enumerate(entries) if _is_topic(entry)]
        topic = text_of(entries[topics[-1]]["content"])
        since = entries[topics[-1] + 1 :]
        calls = [entry for entry in since if entry["type"] == "function_call"]
        return self._tell(topic, calls, since)

    def _tell(self, topic: str, calls: list[dict[str, Any]], since: list[dict[str, Any]]) -> Answer | Refusal:
        """The answer to a topic, by what was called for it and what was said since."""
        match topic.split(" ")[0]:
            case "Plan":
                return self._plan_trip(calls, since)
            case "Ask":
                return _ask_surveyor(calls, since)
            case "Tell":
                return answer(Text(STORY), delay=0.05)
            case "Hold":
                return self._hold_on(calls)
            case "Thanks." if self._busy:
                # Once, so that a call is made again that has shown nothing.
                self._busy = False
                return Refusal(429, "rate_limit_exceeded", "Wait a moment.", headers={"retry-after": "0"})
            case "Wait":
                return self._held(Text("I have waited."))
            case _:
                return answer(Text(f"You said: {topic}"))

    def _plan_trip(self, calls: list[dict[str, Any]], since: list[dict[str, Any]]) -> Answer:
        names = [call["name"] for call in calls]
        if not names:
            wrong = Call("weather", {"city": 5})
            return answer(Thought(("The weather first.",)), Text("I look it up.", phase="commentary"), wrong)
        if names == ["weather"]:
            return self._held(
                Thought(("Once more, and the time.", "Both at once.")),
                Text("I correct the call and ask for the time as well.", phase="commentary"),
                Call("weather", {"city": "Oslo"}),
                Call("clock", {"zone": "UTC"}),
                before=20,
            )
        results = [text_of(entry["output"]) for entry in since if entry["type"] == "function_call_output"]
        steered = any(text_of(entry.get("content", "")) == STEERING for entry in since)
        told = f"It is {results[1]} at {results[2]}{', and Rome comes along' if steered else ''}."
        return answer(Thought(("All is known.",)), Text(told, phase="final_answer"))

    def _hold_on(self, calls: list[dict[str, Any]]) -> Answer:
        if not calls:
            wrong = Call("weather", {"city": 5})
            return self._held(Text("I hold the line.", phase="commentary"), wrong)
        return self._held(Text("I held it.", phase="final_answer"))

    def _held(self, *outputs: Thought | Text | Call, before: int = 6) -> Answer:
        """An answer that stops after some frames until the test lets it go on."""
        self.hold.reached.set()
        return answer(*outputs, hang_after=before, release=self.hold.opened)


def _ask_surveyor(calls: list[dict[str, Any]], since: list[dict[str, Any]]) -> Answer:
    if not calls:
        return answer(Call("survey", {}))
    late = [text_of(entry["content"]) for entry in since if _is_late(entry)]
    if late:
        return answer(Text(f"The survey is in: {late[-1][-20:]}"))
    return answer(Text(ASKED), delay=0.05)


def _is_topic(entry: dict[str, Any]) -> bool:
    if entry["type"] != "message" or entry["role"] != "user" or _is_late(entry):
        return False
    return text_of(entry["content"]) != STEERING


def _is_late(entry: dict[str, Any]) -> bool:
    return entry["type"] == "message" and entry["role"] != "assistant" and LATE in text_of(entry["content"])
