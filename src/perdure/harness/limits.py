"""Ceilings: checked in the one place that spends, before each model call and before calls are announced.

What has been spent is counted by the store (`perdure.store.spending`). A ceiling refuses the next call;
the turn fails and says which ceiling it was, and the session stays as usable as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from perdure.config.prices import NANO
from perdure.config.sections import LimitSettings
from perdure.harness.repetition import Past, repetitions
from perdure.store.boundary import Failure
from perdure.store.coordination import Coordination, refused
from perdure.store.rows import TurnRow
from perdure.store.spending import Tally
from perdure.store.steps import Call, Output, Text
from perdure.wire.limits import NAMES, PREFIX, SCOPE, Ceiling, Value, ceiling_of, is_above

REPETITIONS = ("repeated_calls", "repeated_calls_any_result")


@dataclass(frozen=True, slots=True)
class Hit:
    """A ceiling that refuses the next call, and how the turn ends for it."""

    limit: str
    failure: Failure


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The ceilings of one session. `configured` are the server's own."""

    configured: Mapping[str, Value]
    of_session: Mapping[str, Ceiling]

    def __getitem__(self, name: str) -> Ceiling:
        return self.of_session[name]

    @property
    def on_spend(self) -> str | None:
        """The name of a ceiling on money, if there is one."""
        names = ("spend_per_turn", "spend_per_session")
        return next((name for name in names if self.of_session[name].value is not None), None)


@lru_cache(maxsize=16)
def configured_limits(limits: LimitSettings) -> Mapping[str, Value]:
    """The ceilings of a configuration by name."""
    return {name: getattr(limits, name) for name in sorted(NAMES)}


@lru_cache(maxsize=16)
def _unchanged(limits: LimitSettings) -> Ceilings:
    configured = configured_limits(limits)
    return Ceilings(configured, {name: Ceiling(name, value, "server") for name, value in configured.items()})


def ceilings_of(
    limits: LimitSettings, metadata: Mapping[str, str], kept: Mapping[str, Any] | None
) -> Ceilings:
    """What applies to a session.

    Args:
        kept: what the session's row keeps of ceilings beside its metadata.
    """
    if not kept and not any(key.startswith(PREFIX) for key in metadata):
        return _unchanged(limits)
    configured = configured_limits(limits)
    found = {name: ceiling_of(name, value, metadata, kept) for name, value in configured.items()}
    return Ceilings(configured, found)


def before_call(
    turn: TurnRow,
    spent: Tally,
    ceilings: Ceilings,
    *,
    model: str,
    currency: str | None,
) -> Hit | None:
    """Why the next model call may not be made, if it may not.

    Args:
        spent: the session's tally with the reservation of the call itself.
        model: the model that would be called; `currency` is that of its price, None if it has none.
    """
    of_turn, beside = Tally.of(turn.spent or {}), spent.beside_turn(turn.id)
    used: tuple[tuple[str, float, float], ...] = (
        # Calls that are about to begin count each other; beside a step, the step's own counts too.
        ("model_calls", turn.model_calls + beside, spent.model_calls + spent.under_way - 1),
        ("uncached_input_tokens", of_turn.uncached_input_tokens, spent.uncached_input_tokens),
        ("total_tokens", of_turn.total_tokens, spent.total_tokens),
        ("spend", of_turn.cost / NANO, spent.cost / NANO),
        ("active_seconds", turn.active_us / 1e6, spent.active_us / 1e6),
    )
    for kind, in_turn, in_session in used:
        for scope, amount in (("turn", in_turn), ("session", in_session)):
            ceiling = ceilings[f"{kind}_per_{scope}"]
            if ceiling.value is not None and amount >= ceiling.value:
                return _hit(ceiling, ceilings, _used(kind, scope, amount, currency))
    limited = ceilings.on_spend
    if limited is not None and currency is None:
        text = f"There is a ceiling on money, and the price of the model '{model[:64]}' is not known"
        remedy = " Add a [[price]] table for it to the server's configuration, or use a model that has one."
        return _hit(ceilings[limited], ceilings, text, remedy)
    return None


def before_tools(
    turn: TurnRow,
    spent: Tally,
    ceilings: Ceilings,
    calls: Sequence[Call | Coordination],
    past: Past,
) -> Hit | None:
    """Why the calls of an answer may not be made, if they may not."""
    if not calls:
        return None
    count = len(calls)
    for scope, used in (("turn", turn.tool_calls), ("session", spent.tool_calls)):
        ceiling = ceilings[f"tool_calls_per_{scope}"]
        if ceiling.value is not None and used + count > ceiling.value:
            return _hit(ceiling, ceilings, _used("tool_calls", scope, used, None))
    same_result, any_result = (ceilings[name] for name in REPETITIONS)
    most = [ceiling.value for ceiling in (same_result, any_result) if ceiling.value is not None]
    if not most:
        return None
    functions = [call for call in calls if isinstance(call, Call)]
    if not functions:
        # Waiting again for a subagent is no repetition; what these calls may do has ceilings of its own.
        return None
    run = repetitions(functions, past, int(max(most)))
    for ceiling, length, what in (
        (same_result, run.same_result, "the same arguments and the same result"),
        (any_result, run.any_result, "the same arguments"),
    ):
        if ceiling.value is not None and length >= ceiling.value:
            name = functions[0].name[:64]
            return _hit(ceiling, ceilings, f"'{name}' was called {length} times in a row with {what}")
    return None


def refuse_calls(outputs: Sequence[Output], hit: Hit) -> tuple[Output, ...]:
    """The outputs of an answer with all of its calls refused: they are listed, and not made."""
    refusal = f"Not executed. {hit.failure.message}"
    return tuple(_refuse(output, refusal) for output in outputs)


def _refuse(output: Output, refusal: str) -> Output:
    match output:
        case Call():
            private = {**(output.private or {}), "refused": True}
            return replace(
                output, refusal=refusal, answer=None, is_async=False, counts=False, private=private
            )
        case Coordination():
            return refused(output, refusal)
        case Text():
            return output


_UNITS = {
    "model_calls": "model calls",
    "tool_calls": "tool calls",
    "uncached_input_tokens": "input tokens that were not cached",
    "total_tokens": "tokens",
}


def _used(kind: str, scope: str, amount: float, currency: str | None) -> str:
    match kind:
        case "spend":
            return f"The {scope} has cost about {amount:,.4f} {currency or ''}".rstrip()
        case "active_seconds":
            return f"The {scope} was active for {amount:,.1f} seconds"
    return f"The {scope} has used {int(amount):,} {_UNITS[kind]}"


def _hit(ceiling: Ceiling, ceilings: Ceilings, used: str, remedy: str | None = None) -> Hit:
    shown = "none" if ceiling.value is None else f"{ceiling.value:,}"
    whose = {"session": "of this session", "agent": "of its agent", "server": "of the server"}
    text = f"{used}: the limit {ceiling.name} = {shown} {whose[ceiling.source]} refuses the next call."
    return Hit(ceiling.name, Failure("usage_limit_exceeded", text + (remedy or _remedy(ceiling, ceilings))))


def _remedy(ceiling: Ceiling, ceilings: Ceilings) -> str:
    key = PREFIX + ceiling.name
    if ceiling.source != "server" and is_above(ceilings.configured[ceiling.name], ceiling.value):
        return f" Update the session with a higher {key} in its metadata."
    return (
        f" Update the session with a higher {key} in its metadata, with a key that has the scope {SCOPE}, or "
        f"raise limits.{ceiling.name} in the server's configuration."
    )
