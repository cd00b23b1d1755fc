"""What is said to a session, as the protocol has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from perdure.sdk.ledger import LedgerRecord

Input: TypeAlias = str | Sequence[Mapping[str, Any]]
"""Text, or user messages as the protocol has them."""


def messages(input: Input) -> list[dict[str, Any]]:
    """User messages."""
    if isinstance(input, str):
        return [{"role": "user", "content": [{"type": "input_text", "text": input}]}]
    return [dict(message) for message in input]


def facts_of(record: LedgerRecord | None) -> list[dict[str, Any]]:
    """The pinned values of a ledger as a message in front of what is said; nothing if there are none.

    They are told with each message: compaction leaves no trace by which a client could see that the model
    has lost sight of them.
    """
    from perdure.sdk.pinned import pinned_text

    text = None if record is None else pinned_text(record)
    return [] if text is None else messages(text)
