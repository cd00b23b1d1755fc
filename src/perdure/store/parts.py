"""Saying the parts of an item: what precedes the `item.done` of a message or of reasoning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from perdure.store.locked import LockedSession
from perdure.store.rows import ItemRow
from perdure.wire import events as wire
from perdure.wire.items import OutputText, SummaryText


def open_parts(session: LockedSession, item: ItemRow) -> None:
    """A new message has one part, empty until its deltas come; reasoning parts appear with their text."""
    if item.type == "message":
        empty = OutputText(text="")
        session.say_part(wire.ContentPartAdded(**_place(item), content_index=0, part=empty), item)


def close_item(
    session: LockedSession,
    item: ItemRow,
    data: Mapping[str, Any],
    *,
    status: Literal["completed", "incomplete"],
    private: Mapping[str, Any] | None = None,
) -> ItemRow:
    """Write an item's final data and say its parts' end and its own."""
    item = session.update_item(item, data=data, status=status, private=private)
    where = _place(item)
    if item.type == "message":
        for index, part in enumerate(data["content"]):
            text = part["text"]
            where["content_index"] = index
            session.say_part(wire.OutputTextDone(**where, text=text), item)
            session.say_part(wire.ContentPartDone(**where, part=OutputText(text=text)), item)
    elif item.type == "reasoning":
        # Earlier parts ended when the next one began.
        for index, part in list(enumerate(data["summary"]))[-1:]:
            text = part["text"]
            where["summary_index"] = index
            session.say_part(wire.ReasoningSummaryTextDone(**where, text=text), item)
            session.say_part(
                wire.ReasoningSummaryPartDone(
                    **where,
                    part=SummaryText(text=text),
                    status="incomplete" if status == "incomplete" else None,
                ),
                item,
            )
    session.say_item_done(item)
    return item


def say_whole_text(session: LockedSession, item: ItemRow, data: Mapping[str, Any]) -> None:
    """Deltas of an item that came whole, so that deltas and final text always agree."""
    where = _place(item)
    if item.type == "message":
        for index, part in enumerate(data["content"]):
            delta = wire.OutputTextDelta(**where, content_index=index, delta=part["text"])
            session.say_unstored(delta, item)
    elif item.type == "reasoning":
        for index, part in enumerate(data["summary"]):
            where["summary_index"] = index
            session.say_part(wire.ReasoningSummaryPartAdded(**where, part=SummaryText(text="")), item)
            session.say_unstored(wire.ReasoningSummaryTextDelta(**where, delta=part["text"]), item)
            if index < len(data["summary"]) - 1:
                text = part["text"]
                session.say_part(wire.ReasoningSummaryTextDone(**where, text=text), item)
                session.say_part(wire.ReasoningSummaryPartDone(**where, part=SummaryText(text=text)), item)


def _place(item: ItemRow) -> dict[str, Any]:
    """What every event about a part says; the event's id is set when it is said."""
    return {
        "event_id": "",
        "session_id": item.session_id,
        "turn_id": item.turn_id,
        "item_id": item.id,
        "output_index": item.output_index,
    }
