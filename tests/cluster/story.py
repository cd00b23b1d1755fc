"""The model of the cluster tests: trips that take several steps, each with functions to call.

A strict provider whose answers depend on nothing but the request, as in the crash tests.
"""

from __future__ import annotations

import asyncio
from typing import Any

from tests.crash.model import Model
from tests.crash.scenario import function
from tests.providers.answers import Answer, Call, Text, Thought, answer
from tests.providers.server import text_of

TOOLS = [function(name, "city") for name in ("weather", "hotel", "route")]
STEPS = 3
"""Model calls of one trip."""
TOKENS = 120
"""What each is charged."""
TRIP = [
    *("user", "reasoning", "assistant", "function_call", "function_call"),
    *("function_call_output", "function_call_output"),
    *("assistant", "function_call", "function_call_output"),
    "assistant",
]
"""The items of one trip, less those that a death broke off."""


class StoryModel(Model):
    """Answers `Trip to <city>.` in three steps; everything else it answers as the crash model does."""

    delay = 0.002
    """Seconds before each delta."""

    def renew(self) -> None:
        super().renew()
        self.delay = StoryModel.delay

    async def asked(self, number: int) -> None:
        """Return once the provider was asked more than `number` times."""
        waiting = asyncio.run_coroutine_threadsafe(self.provider.request(number), self._loop)
        await asyncio.wrap_future(waiting)

    def _tell(self, topic: str, calls: list[dict[str, Any]], since: list[dict[str, Any]]) -> Answer:
        if not topic.startswith("Trip to "):
            return super()._tell(topic, calls, since)
        city = topic.removeprefix("Trip to ").rstrip(".")
        results = [text_of(entry["output"]) for entry in since if entry["type"] == "function_call_output"]
        match len(calls):
            case 0:
                return answer(
                    Thought((f"First I look at {city} itself.",)),
                    Text(f"I ask for the weather in {city}, and for a bed.", phase="commentary"),
                    Call("weather", {"city": city}),
                    Call("hotel", {"city": city}),
                    delay=self.delay,
                )
            case 2:
                return answer(
                    Text(f"Now I know: {results[0]}, {results[1]}. How to get there?", phase="commentary"),
                    Call("route", {"city": city}),
                    delay=self.delay,
                )
            case _:
                told = f"All is arranged: {', '.join(results)}. Have a good time in {city}."
                return answer(Text(told, phase="final_answer"), delay=self.delay)


def result_of(name: str, city: str) -> str:
    """What the application answers to a call."""
    return f"{name} of {city} is fine"
