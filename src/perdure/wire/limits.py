"""Ceilings that metadata sets: `perdure.limit.<name>` on a saved agent or a session.

The server's configuration says what applies otherwise. An agent can only lower that; a session can be
given more by a key that may do so, and what was given so is remembered beside the metadata.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from perdure.wire.errors import Forbidden, InvalidRequest

PREFIX = "perdure.limit."
SCOPE = "api.limits.write"
LIFTED = "none"

COUNTS = (
    "model_calls_per_turn",
    "model_calls_per_session",
    "tool_calls_per_turn",
    "tool_calls_per_session",
    "uncached_input_tokens_per_turn",
    "uncached_input_tokens_per_session",
    "total_tokens_per_turn",
    "total_tokens_per_session",
    "repeated_calls",
    "repeated_calls_any_result",
)
AMOUNTS = (
    "spend_per_turn",
    "spend_per_session",
    "active_seconds_per_turn",
    "active_seconds_per_session",
)
NAMES = frozenset((*COUNTS, *AMOUNTS))

Value = int | float | None
"""A ceiling; None where there is none."""
Source = Literal["session", "agent", "server"]

_COUNT = re.compile(r"[1-9][0-9]{0,14}")
_AMOUNT = re.compile(r"(?:0|[1-9][0-9]{0,11})(?:\.[0-9]{1,9})?")


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What applies to a session under one name, and who said so."""

    name: str
    value: Value
    source: Source


@dataclass(frozen=True, slots=True)
class LimitRules:
    """What decides about new ceilings: the server's own, and whether the caller may go above them."""

    maximum: Mapping[str, Value] = field(default_factory=dict)
    may_raise: bool = False


def limit_fault(key: str, text: str) -> str | None:
    """What is wrong with a metadata pair, if its key sets a ceiling; `{param}` stands for its place."""
    if not key.startswith(PREFIX):
        return None
    name = key.removeprefix(PREFIX)
    if name not in NAMES:
        return f"Invalid '{{param}}': there is no such limit. Known: {', '.join(sorted(NAMES))}."
    if text == LIFTED:
        return None
    if name in COUNTS:
        wanted = "a whole number from 1, such as '50'"
        fits = _COUNT.fullmatch(text) is not None
    else:
        wanted = "a number above 0 with at most nine decimals, such as '2.50'"
        fits = _AMOUNT.fullmatch(text) is not None and float(text) > 0
    return None if fits else f"Invalid '{{param}}': expected {wanted}, or '{LIFTED}'."


def wanted_limits(metadata: Mapping[str, str] | None) -> dict[str, str]:
    """The ceilings that metadata sets, as they are written there, by name."""
    return {
        key.removeprefix(PREFIX): text
        for key, text in (metadata or {}).items()
        if key.startswith(PREFIX) and limit_fault(key, text) is None
    }


def read_value(text: str) -> Value:
    """A ceiling as it is written in metadata."""
    if text == LIFTED:
        return None
    return int(text) if text.isdecimal() else float(text)


def is_above(value: Value, maximum: Value) -> bool:
    """Whether a ceiling allows more than another."""
    return maximum is not None and (value is None or value > maximum)


def check_agent_limits(metadata: Mapping[str, str] | None, maximum: Mapping[str, Value]) -> None:
    """Refuse an agent that would allow more than the server does.

    Raises:
        InvalidRequest: `param` names the pair.
    """
    for name, text in wanted_limits(metadata).items():
        if is_above(read_value(text), maximum.get(name)):
            param = f"metadata.{PREFIX}{name}"
            raise InvalidRequest(
                f"Invalid '{param}': an agent can only lower a limit, and this server's is "
                f"{maximum[name]:,}. A session can be given more, with a key that has the scope {SCOPE}.",
                param=param,
            )


def settle_limits(
    metadata: Mapping[str, str] | None,
    agent: Mapping[str, str] | None,
    before: Mapping[str, Any] | None,
    rules: LimitRules,
) -> dict[str, Any] | None:
    """What is kept of a session's ceilings beside its new metadata; None for nothing.

    Args:
        agent: the ceilings of the saved agent, by name, as they were when the session was made.
        before: what was kept so far.

    Raises:
        Forbidden: a ceiling is above the server's, and the caller may not raise it.
    """
    earlier: Mapping[str, str] = (before or {}).get("granted", {})
    granted: dict[str, str] = {}
    for name, text in wanted_limits(metadata).items():
        maximum = rules.maximum.get(name)
        if not is_above(read_value(text), maximum):
            continue
        known = earlier.get(name)
        if not rules.may_raise and (known is None or is_above(read_value(text), read_value(known))):
            param = f"metadata.{PREFIX}{name}"
            raise Forbidden(
                f"Invalid '{param}': this server's limit is {maximum:,}. Set it to at most that, or use a "
                f"key that has the scope {SCOPE}.",
                param=param,
            )
        granted[name] = text
    kept = {"agent": dict(agent or {}), "granted": granted}
    return {key: value for key, value in kept.items() if value} or None


def ceiling_of(
    name: str, maximum: Value, metadata: Mapping[str, str], kept: Mapping[str, Any] | None
) -> Ceiling:
    """What applies to a session under one name.

    Args:
        maximum: what the server's configuration says.
        kept: what `settle_limits` made.
    """
    kept = kept or {}
    text = metadata.get(PREFIX + name)
    if text is not None and limit_fault(PREFIX + name, text) is None:
        value = read_value(text)
        if not is_above(value, maximum) or kept.get("granted", {}).get(name) == text:
            return Ceiling(name, value, "session")
    elif (inherited := kept.get("agent", {}).get(name)) is not None:
        value = read_value(inherited)
        if not is_above(value, maximum):
            return Ceiling(name, value, "agent")
    return Ceiling(name, maximum, "server")
