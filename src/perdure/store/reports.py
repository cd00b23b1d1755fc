"""Reports: what an agent is told of the turn of a subagent that has ended, exactly once.

The end of the turn and the report, a row in the inbox of the parent, are one transaction. The parent takes
the row out in the transaction that makes it an `agent_message` of its own history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.store import hot
from perdure.store.locked import LockedSession
from perdure.store.rows import SubagentRow, TurnRow

REPORT = "report"
"""The kind of the inbox row. Reports alone begin no turn, unless the settings say so."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a turn: its final answer, or what it had written last."""

    turn: TurnRow
    text: str

    @property
    def sentence(self) -> str:
        """The outcome in words, with the text."""
        match self.turn.status:
            case "completed":
                return self.text or "(The subagent ended its turn without any text.)"
            case "failed":
                error = self.turn.error or {}
                head = f"The subagent's turn failed with {error.get('code')}: {error.get('message')}"
            case "cancelled":
                head = "The subagent was interrupted before it had finished."
            case _:
                head = "The subagent is still at work."
        return f"{head}\n{self._last}"

    @property
    def _last(self) -> str:
        return f"What it had written last:\n{self.text}" if self.text else "It had written no text."

    @property
    def tokens(self) -> int | None:
        """What the turn used, as far as its provider told."""
        return None if self.turn.usage is None else int(self.turn.usage["total_tokens"])


def outcome_of(session: LockedSession, turn: TurnRow) -> Outcome:
    """What has come of a turn up to now."""
    texts = [(row, "".join(part["text"] for part in row.data["content"])) for row in session.said(turn)]
    final = [text for row, text in texts if row.status == "completed" and row.data["phase"] != "commentary"]
    if final and turn.status == "completed":
        return Outcome(turn, "".join(final))
    return Outcome(turn, next((text for _, text in reversed(texts) if text), ""))


def last_turn(session: LockedSession, subagent: SubagentRow) -> TurnRow | None:
    """The newest turn of a subagent, ended or not."""
    if subagent.turn_id is not None:
        return session.turn(subagent.id)
    here = {"session_id": session.id, "subagent_id": subagent.id}
    found = hot.LAST_TURN.fetch(session.tx.conn, {**here, "limit": 1})
    return session.as_changed(TurnRow(**found[0])) if found else None


def leave_report(session: LockedSession, turn: TurnRow) -> None:
    """Tell the parent of the subagent whose turn has ended."""
    subagent = _subagent_of(session, turn)
    payload = {"turn": turn.id, "quiet": turn.status == "cancelled"}
    session.queue_input(REPORT, payload, subagent.parent_agent_id)


def apply_reports(session: LockedSession, turn: TurnRow, rows: Sequence[Mapping[str, Any]]) -> None:
    """Make the reports among these inbox rows messages of the turn, in their order."""
    reports = [row for row in rows if row["kind"] == REPORT]
    for row in reports:
        found = hot.TURN.fetch(session.tx.conn, {"turn_id": row["payload"]["turn"]})
        ended = session.as_changed(TurnRow(**found[0]))
        subagent = _subagent_of(session, ended)
        outcome = outcome_of(session, ended)
        data = {
            "sender_agent_id": subagent.id,
            "recipient_agent_id": turn.agent_id,
            "content": [{"type": "output_text", "text": outcome.sentence}],
        }
        told = {"name": subagent.name, "status": ended.status, "tokens": outcome.tokens}
        session.say_item_added(
            session.insert_item(turn, "agent_message", data, status=None, private={REPORT: told})
        )
    session.drop_inbox([row["pos"] for row in reports])


def _subagent_of(session: LockedSession, turn: TurnRow) -> SubagentRow:
    assert turn.subagent_id is not None
    subagent = session.subagent(turn.subagent_id)
    assert subagent is not None
    return subagent
