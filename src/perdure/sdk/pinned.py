"""Values of a ledger that the model is told again, because compaction may have dropped them.

A perdure server keeps them as pinned facts, in the session's metadata. Other servers keep none; there they
are told in a message.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from perdure.sdk.journal_errors import LedgerError, LedgerInvalid
from perdure.sdk.journal_json import Json
from perdure.wire.metadata import MAX_KEY, MAX_PAIRS, MAX_VALUE

if TYPE_CHECKING:
    from perdure.sdk.ledger import LedgerRecord

PIN = "perdure.pin."
"""`metadata["perdure.pin.<field>"]` is where a server finds the value of a pinned field."""

LONGEST_NAME = MAX_KEY - len(PIN)
MOST_PINNED = MAX_PAIRS - 2
"""Two pairs of a session's metadata name its agent and its ledger."""

MOST_BYTES = 4096
"""How much text the pinned values may make; a value that would make it longer is left out and named."""


def check_pinned(form: str, pinned: Sequence[str]) -> None:
    """Refuse fields that no session's metadata could hold as pinned facts.

    Raises:
        LedgerError: there are too many, or one has too long a name.
    """
    if len(pinned) > MOST_PINNED:
        raise LedgerError(
            f"{form} pins {len(pinned)} fields, and a session's metadata has room for {MOST_PINNED}: pin "
            "only what the model must not lose, or put several values into one field."
        )
    for name in pinned:
        if len(name) > LONGEST_NAME:
            raise LedgerError(
                f"{form} pins {name}, whose name has {len(name)} characters; that of a pinned field has at "
                f"most {LONGEST_NAME}. Give it a shorter name, or do not pin it."
            )


def check_values(pinned: Sequence[str], value: Mapping[str, Json]) -> None:
    """Refuse values that are too long for a pinned fact.

    Raises:
        LedgerInvalid: one is.
    """
    for name in pinned:
        length = 0 if value.get(name) is None else len(pin_text(value[name]))
        if length > MAX_VALUE:
            raise LedgerInvalid(
                f"The pinned field {name} has {length} characters as text, and a pinned fact has at most "
                f"{MAX_VALUE}: keep a shorter form of it, or move it to a field that is not pinned.",
                [f"{name}: at most {MAX_VALUE} characters as text, because it is pinned"],
            )


def pinned_values(record: LedgerRecord) -> dict[str, Json]:
    """The pinned fields that have a value, by name."""
    return {name: record.value[name] for name in record.pinned if record.value.get(name) is not None}


def pin_text(value: Json) -> str:
    """A value as a pinned fact: text as it is, if it is one plain line, and anything else as JSON."""
    is_plain = isinstance(value, str) and value and value.isprintable()
    return value if is_plain else _json(value)


def with_pins(metadata: Mapping[str, str], record: LedgerRecord) -> dict[str, str]:
    """A session's metadata with the pinned facts of its ledger, and without those that have no value."""
    own = {PIN + name for name in record.pinned}
    others = {name: text for name, text in metadata.items() if name not in own}
    return others | {PIN + name: pin_text(value) for name, value in pinned_values(record).items()}


def check_room(metadata: Mapping[str, str], more: int = 0) -> None:
    """Refuse more pairs than metadata can have, with `more` that are still to come.

    Raises:
        LedgerError: they are too many.
    """
    if len(metadata) + more > MAX_PAIRS:
        pins = sum(name.startswith(PIN) for name in metadata)
        raise LedgerError(
            f"The session's metadata would have {len(metadata) + more} pairs, and there is room for "
            f"{MAX_PAIRS}; {pins} of them are pinned facts. Pin fewer fields of the ledger, or take pairs of "
            "your own out of the metadata."
        )


def differing_pins(metadata: Mapping[str, str], record: LedgerRecord) -> list[str]:
    """The pinned fields whose value is another in the ledger than among the session's pinned facts."""
    wanted = with_pins(metadata, record)
    return [name for name in record.pinned if wanted.get(PIN + name) != metadata.get(PIN + name)]


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
