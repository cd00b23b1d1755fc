"""What the name of a Gemini model tells about it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from perdure.models.messages import Capabilities, Effort

CONTEXT_WINDOW = 1_048_576
MAX_OUTPUT_TOKENS = 65_536
TIERS = ("flex", "priority")
"""The service tiers that a request may name; the provider's own default is the third."""

_NAME = re.compile(r"(?:^|/)gemini-(\d+)(?:\.(\d+))?(?:-(pro|flash))?")

_LEVELS: Mapping[Effort, str] = {
    "minimal": "MINIMAL",
    "low": "LOW",
    "medium": "MEDIUM",
    "high": "HIGH",
    "xhigh": "XHIGH",
    "max": "XHIGH",
}
# Tokens; those of the provider's own translation from OpenAI's efforts, where there is one.
_BUDGETS: Mapping[Effort, int] = {
    "none": 0,
    "minimal": 512,
    "low": 1024,
    "medium": 8192,
    "high": 24_576,
    "xhigh": 32_768,
    "max": 32_768,
}


@dataclass(frozen=True, slots=True)
class Rules:
    """What a model accepts. The defaults are those of a model nobody has heard of: the newest ones.

    Args:
        json_schema: it takes JSON Schema; else the subset of OpenAPI's schemas.
        schema_with_tools: it can be held to an output schema while functions are offered.
        signed_calls: the first call of every step needs a signature.
        call_ids: calls and their results carry ids.
        fetches_images: it reads images from the web.
        thinking: how its thinking is set.
    """

    json_schema: bool = True
    schema_with_tools: bool = True
    signed_calls: bool = True
    call_ids: bool = True
    fetches_images: bool = True
    thinking: Literal["level", "budget", "none"] = "level"


def known_rules(model: str) -> Rules:
    """The rules of a model by its name, before it has refused anything."""
    version = _version(model)
    if version is None or version >= (3, 0):
        return Rules()
    if version >= (2, 5):
        return Rules(schema_with_tools=False, signed_calls=False, thinking="budget")
    return Rules(schema_with_tools=False, signed_calls=False, fetches_images=False, thinking="none")


def known_capabilities(model: str) -> Capabilities:
    """What the harness needs to know of a model, as far as its name tells."""
    version = _version(model)
    return Capabilities(
        context_window=CONTEXT_WINDOW if version is not None and version >= (2, 0) else None,
        max_output_tokens=MAX_OUTPUT_TOKENS if version is not None and version >= (2, 5) else None,
        efforts=known_efforts(model),
        service_tiers=("auto", "default", *TIERS),
    )


def known_efforts(model: str) -> tuple[Effort, ...] | None:
    """The reasoning efforts of a model, or None when its name does not tell."""
    found, version = _NAME.search(model), _version(model)
    if found is None or version is None or version >= (4, 0):
        return None
    is_pro = found[3] == "pro"
    if version >= (3, 0):
        return ("low", "medium", "high") if is_pro else ("minimal", "low", "medium", "high")
    if version >= (2, 5):
        thinking: tuple[Effort, ...] = ("minimal", "low", "medium", "high")
        return thinking if is_pro else ("none", *thinking)
    return ("none",)


def thinking_config(rules: Rules, effort: Effort | None, *, summary: bool) -> dict[str, Any]:
    """The settings for the thinking of a model; empty where its own defaults are wanted.

    Args:
        summary: whether summaries of its thoughts are wanted.
    """
    if rules.thinking == "none":
        return {}
    config: dict[str, Any] = {"includeThoughts": True} if summary else {}
    if effort is None:
        return config
    if rules.thinking == "level" and effort in _LEVELS:
        config["thinkingLevel"] = _LEVELS[effort]
    else:
        config["thinkingBudget"] = _BUDGETS[effort]
    return config


def _version(model: str) -> tuple[int, int] | None:
    found = _NAME.search(model)
    return None if found is None else (int(found[1]), int(found[2] or 0))
