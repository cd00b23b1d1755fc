"""What each family of Claude models can do, known from its name; the configuration overrides all of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from perdure.models.messages import Capabilities, Effort

Thinking = Literal["always", "default", "on_request", "budget", "never"]
Off = Literal["disabled", "between_tools"]

LEVELS: tuple[Effort, ...] = ("low", "medium", "high", "xhigh", "max")
BUDGET_LEVELS: tuple[Effort, ...] = ("none", "minimal", "low", "medium", "high")
TIERS = ("auto", "default", "priority")
FAST_TIERS = ("fast", "ultrafast")


@dataclass(frozen=True, slots=True)
class Family:
    """Models that take the same requests; sizes in tokens.

    `thinking` is when they think: "always"; by "default", turned off by the thinking type `off`; only
    "on_request"; only within a "budget" of tokens; "never". `output_format`: the API holds them to a JSON
    schema. `fast`: they have a fast mode that needs no beta header.
    """

    context_window: int | None
    max_output_tokens: int
    thinking: Thinking
    efforts: tuple[Effort, ...] | None
    off: Off = "disabled"
    output_format: bool = True
    fast: bool = False

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            context_window=self.context_window,
            max_output_tokens=self.max_output_tokens,
            efforts=self.efforts,
            native_output_schema=self.output_format,
            service_tiers=TIERS + FAST_TIERS if self.fast else TIERS,
        )


_M = 1_000_000
_K = 1000
_WITH_NONE: tuple[Effort, ...] = ("none", *LEVELS)

# The first that is found in a name wins. Gateways put a prefix before it and dots for dashes.
_FAMILIES: tuple[tuple[re.Pattern[str], Family], ...] = tuple(
    (re.compile(pattern), family)
    for pattern, family in (
        (r"claude-(?:fable|mythos)-5-2", Family(_M, 128 * _K, "always", LEVELS, fast=True)),
        (r"claude-(?:fable|mythos)-(?:5|preview)", Family(_M, 128 * _K, "always", LEVELS)),
        (r"claude-opus-5-5", Family(_M, 128 * _K, "always", LEVELS, fast=True)),
        (r"claude-sonnet-5-5", Family(_M, 128 * _K, "default", _WITH_NONE, off="between_tools")),
        (r"claude-(?:opus|sonnet|haiku)-5(?!\d)", Family(_M, 128 * _K, "default", _WITH_NONE)),
        (r"claude-opus-4-[78](?!\d)", Family(_M, 128 * _K, "on_request", _WITH_NONE)),
        (
            r"claude-opus-4-6(?!\d)",
            Family(_M, 128 * _K, "on_request", ("none", "low", "medium", "high", "max")),
        ),
        (
            r"claude-sonnet-4-6(?!\d)",
            Family(_M, 64 * _K, "on_request", ("none", "low", "medium", "high", "max")),
        ),
        (r"claude-(?:opus|sonnet|haiku)-4-5(?!\d)", Family(200 * _K, 64 * _K, "budget", BUDGET_LEVELS)),
        (
            r"claude-opus-4(?!\d)",
            Family(200 * _K, 32 * _K, "budget", BUDGET_LEVELS, output_format=False),
        ),
        (
            r"claude-sonnet-4(?!\d)|claude-3-7",
            Family(200 * _K, 64 * _K, "budget", BUDGET_LEVELS, output_format=False),
        ),
        (r"claude-3-5", Family(200 * _K, 8192, "never", ("none",), output_format=False)),
        (r"claude-(?:3|2|instant)", Family(200 * _K, 4096, "never", ("none",), output_format=False)),
        # Newer than this list: asked as the newest ones are, with what cannot be known left open.
        (r"claude-[a-z]+-\d", Family(None, 64 * _K, "default", None)),
    )
)
UNKNOWN = Family(None, 32 * _K, "default", None, output_format=False)
"""What is taken of a model with a name of its own, behind a gateway or of another maker."""


def family_of(model: str) -> Family:
    """The family of a model by its upstream name."""
    name = model.lower().replace(".", "-")
    return next((family for pattern, family in _FAMILIES if pattern.search(name)), UNKNOWN)
