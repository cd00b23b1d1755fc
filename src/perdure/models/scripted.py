"""The scripted model: answers from a script file, for trying perdure without a key and for testing agents."""

from __future__ import annotations

import asyncio
import os
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

from perdure.config.settings import ProviderSettings
from perdure.models import script
from perdure.models.errors import ModelError
from perdure.models.messages import ModelEvent, ModelRequest
from perdure.models.script_checks import check_request
from perdure.models.script_conditions import match_conditions
from perdure.models.script_file import load_script
from perdure.models.script_performance import FileWait, Performance
from perdure.models.script_situation import Situation
from perdure.wire.turns import TurnErrorCode

_POLL = 0.01
_MOST_CONVERSATIONS = 10_000
RETRYABLE = frozenset(
    {
        "cut",
        "connection_failed",
        "flex_unavailable",
        "rate_limit_exceeded",
        "request_timeout",
        "server_error",
        "server_overloaded",
    }
)


class ScriptedModel:
    """A `Model` that plays the script of its provider, or the demonstration script without one.

    The answer depends on the request and the script only, except where a rule asks how often it has
    fired (`times`). Malformed requests and requests larger than the provider's `context_window` are
    refused as a strict provider refuses them.

    Raises `ScriptError` when the script cannot be used.
    """

    def __init__(self, provider: ProviderSettings) -> None:
        self._provider = provider
        self._script = load_script(provider.script)
        self._folder = provider.script.parent if provider.script is not None else Path()
        self._windows = {
            model.upstream or name: model.context_window
            for name, model in provider.model.items()
            if model.context_window is not None
        }
        self._fired: Counter[int] = Counter()
        self._fired_in: OrderedDict[str | None, Counter[int]] = OrderedDict()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        situation = Situation(request, self._provider.name)
        check_request(request, self._provider.name)
        self._check_size(situation)
        reply, captures = self._choose(situation)
        for beat in Performance(situation, captures).play(reply):
            match beat:
                case script.Pause():
                    await asyncio.sleep(beat.pause)
                case FileWait():
                    await self._wait_for_file(beat)
                case script.Fault():
                    raise _fault(beat)
                case _:
                    yield beat

    async def close(self) -> None:
        """Nothing is held open."""

    def _check_size(self, situation: Situation) -> None:
        window = self._windows.get(situation.request.model, self._provider.context_window)
        if window is not None and situation.input_tokens > window:
            raise ModelError(
                "context_length_exceeded",
                f"The request has about {situation.input_tokens} tokens; "
                f"the context window of {situation.request.model} holds {window}.",
                status=400,
            )

    def _choose(self, situation: Situation) -> tuple[script.Reply, Mapping[str, str]]:
        for index, rule in enumerate(self._script.rule):
            captures = match_conditions(rule.when, situation)
            if captures is not None and self._may_fire(index, rule.when, situation.request.cache_key):
                return rule, captures
        if self._script.otherwise is not None:
            return self._script.otherwise, {}
        raise ModelError(
            "invalid_request",
            f"No rule of the script of {self._provider.name} holds for this request "
            f"(turn {situation.turn}, step {situation.step}) and it has no [otherwise].",
        )

    def _may_fire(self, index: int, when: script.When, conversation: str | None) -> bool:
        """Whether the rule has not fired too often; counts this time if so."""
        if when.times is not None and self._fired[index] >= when.times:
            return False
        if when.times_per_conversation is not None:
            fired = self._fired_in.setdefault(conversation, Counter())
            if fired[index] >= when.times_per_conversation:
                return False
            fired[index] += 1
            self._fired_in.move_to_end(conversation)
            if len(self._fired_in) > _MOST_CONVERSATIONS:
                self._fired_in.popitem(last=False)
        self._fired[index] += 1
        return True

    async def _wait_for_file(self, wait: FileWait) -> None:
        path = os.path.join(self._folder, wait.path)
        clock = asyncio.get_running_loop().time
        deadline = clock() + wait.timeout
        while not os.path.exists(path):  # noqa: ASYNC240 -- one stat is shorter than the way to a thread
            if clock() >= deadline:
                raise ModelError(
                    "request_timeout", f"The file {wait.path} did not appear in {wait.timeout:g} s."
                )
            await asyncio.sleep(_POLL)


def _fault(fault: script.Fault) -> ModelError:
    code: TurnErrorCode
    if fault.fault == "cut":
        code, message = "connection_failed", "The connection to the scripted model was cut."
    else:
        code, message = fault.fault, f"The script ends this model call with {fault.fault}."
    return ModelError(
        code,
        fault.message or message,
        retryable=fault.fault in RETRYABLE if fault.retryable is None else fault.retryable,
        retry_after=fault.retry_after,
        status=fault.status,
    )
