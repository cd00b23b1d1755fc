"""How a conversation goes on with another agent: a session of its own, tied to the one it came from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure.sdk import links
from perdure.sdk.errors import ToolError
from perdure.sdk.handoff import HandoffNote, HandoffRecord, Party, evidence_of, intent_of

if TYPE_CHECKING:
    from perdure.sdk.calls import CallPair
    from perdure.sdk.context import ToolContext
    from perdure.sdk.handoff import Handoff
    from perdure.sdk.ledger import LedgerRecord
    from perdure.sdk.session import Session


async def hand_over(
    session: Session[Any],
    handoff: Handoff[Any],
    context: ToolContext[Any],
    details: Any,
    note: HandoffNote,
    ledger: LedgerRecord | None,
) -> HandoffRecord:
    """Begin the target's session and tie both together. Raises ToolError for a second one in a turn."""
    pair = context.pair
    metadata = (await session.retrieve()).metadata
    if metadata.get(links.TO_TURN) == pair.turn_id and metadata.get(links.TO_CALL) != pair.call_id:
        raise ToolError("The conversation has been handed over already, in this turn.")
    record = HandoffRecord(
        Party(session.agent.name, pair.session_id, pair.turn_id, pair.call_id),
        Party(handoff.agent.name, ""),
        intent_of(details, note, handoff),
        evidence_of(details, note),
        note.ids or ({} if ledger is None else dict(ledger.value)),
        details,
    )
    target = await linked_session(session, "handoff", pair) if context.is_repeat else None
    if target is None:
        opening = record.as_json()
        del opening["to"]["session_id"]
        begun = session.sessions.begin(
            handoff.agent,
            environment=handoff.environment,
            metadata=links.backward("handoff", pair),
            key=links.creation_key("handoff", pair),
            **_carried(ledger, session.ledger_type),
        )
        target = await begun.create(handoff.opening(opening))
    forward = links.forward(target, pair)
    await session.pins.change_metadata(lambda present: {**present, **forward})
    return HandoffRecord(
        record.source,
        Party(handoff.agent.name, target),
        record.intent,
        record.evidence,
        record.ids,
        details,
    )


async def linked_session(session: Session[Any], kind: links.Kind, pair: CallPair) -> str | None:
    """The session that an earlier try of a call has begun."""
    found = session.sessions.resource.list(metadata=links.backward(kind, pair), limit=1)
    async for each in found:
        return each.id
    return None


def _carried(ledger: LedgerRecord | None, ledger_type: Any) -> dict[str, Any]:
    """What begins the next session with the present ledger; nothing without one."""
    from perdure.sdk.ledgers import ANY_OBJECT

    if ledger is None:
        return {}
    # Whoever resumed this session by its id may not have said what its ledger is typed by.
    form = ANY_OBJECT if ledger_type is None else ledger_type
    return {"ledger": dict(ledger.value), "ledger_type": form, "pinned": ledger.pinned}
