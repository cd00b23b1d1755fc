"""What differs between servers of the Chat Completions protocol and cannot be learnt from their answers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from perdure.models.outgoing import call_id, short_call_id

MAX_CALL_ID = 40

ReasoningRule = Literal["as_received", "required", "forbidden"]

# Served alone, this model refuses its own reasoning in the history; every other wants it back.
_WITHOUT_REPLAY = re.compile(r"\bdeepseek-r1\b", re.IGNORECASE)
_REASONING_FIELD = re.compile(r"\breasoning_(?:content|details)\b|['\"`]reasoning['\"`]")


@dataclass(frozen=True, slots=True)
class Dialect:
    """`limit_field` names the limit of output tokens; `short_ids` asks for ids of nine characters."""

    limit_field: str = "max_tokens"
    short_ids: bool = False

    def call_id(self, ours: str) -> str:
        return short_call_id(ours) if self.short_ids else call_id(ours, MAX_CALL_ID)


def dialect_of(base_url: str | None) -> Dialect:
    """The dialect of the server at an address."""
    host = urlsplit(base_url or "").hostname or ""
    if _is_under(host, "openai.com") or _is_under(host, "azure.com"):
        # OpenAI's reasoning models refuse the old name, most other servers do not know the new one.
        return Dialect(limit_field="max_completion_tokens")
    return Dialect(short_ids=_is_under(host, "mistral.ai"))


class ReasoningRules:
    """What each model wants to see again of the reasoning in the history.

    Unless it is known or learnt otherwise, reasoning goes back to the model it came from, and once
    there is any, every message of the assistant has the field.
    """

    def __init__(self) -> None:
        self._learnt: dict[str, ReasoningRule] = {}

    def rule(self, model: str) -> ReasoningRule:
        known: ReasoningRule = "forbidden" if _WITHOUT_REPLAY.search(model) else "as_received"
        return self._learnt.get(model, known)

    def learn(self, model: str, complaint: str, *, was_sent: bool) -> bool:
        """Take a refused request into account; whether the next one will be different."""
        if model in self._learnt or not _REASONING_FIELD.search(complaint):
            return False
        self._learnt[model] = "forbidden" if was_sent else "required"
        return True


def _is_under(host: str, domain: str) -> bool:
    return host == domain or host.endswith(f".{domain}")
