"""Ids of a ledger that the model can no longer see."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from perdure.sdk.journal_json import Json
from perdure.sdk.ledger import BOOKKEEPING
from perdure.sdk.pinned import PIN
from perdure.sdk.session_facts import SessionFacts

ID_NAME = re.compile(r"(?:^|[_-])(?:id|no|number|ref|reference|code|key)$|[a-z](?:Id|ID|No|Number|Ref)$")
CHECKPOINT = "after_"


def vanished_ids(
    facts: SessionFacts, document: Mapping[str, Json], pinned: Sequence[str] = ()
) -> Iterator[tuple[str, Json]]:
    """The ledger's ids, by name, that stand in no text the model still sees verbatim.

    An id is the value of a pinned field, or of one with a name like `order_id`. What the model sees are the
    agent's instructions, the session's pinned facts, and the items, after `compact_checkpoint` those of later
    turns alone. A session without items has nothing to be missed in.
    """
    if not facts.items:
        return
    seen = _visible(facts, document.get("compact_checkpoint"))
    instructions = (facts.session.get("agent") or {}).get("instructions") or ""
    metadata: Mapping[str, str] = facts.session.get("metadata") or {}
    facts_kept = [fact for name, fact in metadata.items() if name.startswith(PIN)]
    text = "\n".join([instructions, *facts_kept, *(text for item in seen for text in _texts(item))])
    for name, value in document.items():
        if name in BOOKKEEPING or not (name in pinned or ID_NAME.search(name)):
            continue
        if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
            continue
        if not re.search(rf"(?<!\w){re.escape(str(value))}(?!\w)", text):
            yield name, value


def _visible(facts: SessionFacts, checkpoint: Json) -> Sequence[Mapping[str, Json]]:
    if not isinstance(checkpoint, str) or not checkpoint.startswith(CHECKPOINT):
        return facts.items
    turn = checkpoint.removeprefix(CHECKPOINT)
    last = max((index for index, item in enumerate(facts.items) if item.get("turn_id") == turn), default=-1)
    return facts.items[last + 1 :]


def _texts(value: Json) -> Iterator[str]:
    """Every string and number of an item."""
    match value:
        case dict():
            for member in value.values():
                yield from _texts(member)
        case list():
            for element in value:
                yield from _texts(element)
        case bool() | None:
            pass
        case scalar:
            yield str(scalar)
