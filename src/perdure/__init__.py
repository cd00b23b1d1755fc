"""perdure: durable sessions for long-running AI agents that you host yourself.

The names of the SDK are here: `from perdure import Agent, Sessions, tool`. They are loaded when they are
used, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perdure.sdk import *  # noqa: F403

__version__ = "0.1.0"

_SDK = f"{__name__}.sdk"
_FUNCTIONS = {"check_adapter", "from_marshmallow", "handoff", "schema_of", "tool"}


def __getattr__(name: str) -> Any:
    # Names of modules end up here, too, and must not load anything.
    if name[:1].isupper() or name in _FUNCTIONS:
        sdk = importlib.import_module(_SDK)
        if name in sdk.__all__:
            return getattr(sdk, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *importlib.import_module(_SDK).__all__])
