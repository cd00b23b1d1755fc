"""One call of a function: which one it is, and the result that answers it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class CallPair:
    """What pins a result to its call. `turn_id` and `call_id` are copied from the required action."""

    session_id: str
    turn_id: str
    call_id: str

    def __str__(self) -> str:
        return f"{self.session_id}/{self.turn_id}/{self.call_id}"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What answers a call: `output` when `success`, else `error`.

    `output` is text, or a list of content parts; never another object, because the protocol takes none.
    """

    success: bool
    output: str | Sequence[dict[str, Any]] | None = None
    error: str | None = None

    def event(self, turn_id: str, call_id: str) -> dict[str, Any]:
        """The result as an input event of the session."""
        answer = {"output": self.output} if self.success else {"error": self.error}
        return {
            "type": "agent.session.input.tool_result",
            "turn_id": turn_id,
            "call_id": call_id,
            "success": self.success,
            **answer,
        }
