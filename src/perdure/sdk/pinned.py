"""Values of a ledger that the model is told again, because compaction may have dropped them."""

from __future__ import annotations

import json
from collections.abc import Mapping

from perdure.sdk.journal_json import Json
from perdure.sdk.ledger import LedgerRecord

MOST_BYTES = 4096
"""How much text the pinned values may make; a value that would make it longer is left out and named."""


def pinned_values(record: LedgerRecord) -> dict[str, Json]:
    """The pinned fields that have a value, by name."""
    return {name: record.value[name] for name in record.pinned if record.value.get(name) is not None}


def pinned_text(record: LedgerRecord) -> str | None:
    """The pinned values as a text for the model, one JSON value a line; None when there are none.

    For servers that keep no pinned facts: put it in front of the next message after a compaction.
    """
    return facts_text(pinned_values(record), record.version)


def facts_text(facts: Mapping[str, Json], version: int) -> str | None:
    """Facts by name as a text for the model, at most `MOST_BYTES` long."""
    if not facts:
        return None
    lines = [f"Facts that the application keeps for this session (version {version}). Use them as they are:"]
    size = len(lines[0].encode())
    dropped = []
    for name, value in facts.items():
        # JSON, so that no value can pass for another line.
        line = f"- {name}: {_json(value)}"
        length = len(line.encode()) + 1
        if size + length > MOST_BYTES:
            dropped.append(name)
        else:
            lines.append(line)
            size += length
    if dropped:
        lines.append(f"(too long to repeat: {', '.join(dropped)[:500]})")
    return "\n".join(lines)


def _json(value: Json) -> str:
    text = json.dumps(value, ensure_ascii=False)
    # Half a surrogate pair has no UTF-8, and these two end a line in some eyes.
    if any("\ud800" <= letter <= "\udfff" or letter in "\u2028\u2029\x85" for letter in text):
        return json.dumps(value)
    return text
