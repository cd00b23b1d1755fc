"""Accepting input: what the API may write of a session it does not own.

States an input can meet: idle (a queued turn is created here), busy (an inbox row waits for the next
step boundary), failed (refused). Everything of a batch is written in one transaction, or nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select

from perdure.store.endings import drop_calls
from perdure.store.idempotency import IdempotencyKey, run_once
from perdure.store.locked import LockedSession
from perdure.store.reports import apply_reports
from perdure.store.rows import CallRow, TurnRow
from perdure.store.tables import items, turns
from perdure.store.tx import Tx, Woken
from perdure.wire import events as wire
from perdure.wire.errors import Conflict, InvalidRequest, NotFound
from perdure.wire.inputs import (
    CancelInput,
    ComputerApprovalResultInput,
    InputEvent,
    McpApprovalResultInput,
    MessageInput,
    ToolResultInput,
    UserMessageInput,
)


def accept(tx: Tx, session: LockedSession, batch: Sequence[InputEvent]) -> None:
    """Admit a batch of input events and wake the session's owner, if it has something to do.

    Raises:
        InvalidRequest, Conflict, NotFound: one of the events cannot be admitted; nothing was.
    """
    if not batch:
        return
    if session.status == "failed":
        raise Conflict("The session has failed and takes no more input. Create a new session.")
    admission = _Admission(session)
    for index, event in enumerate(batch):
        admission.admit(event, f"events[{index}]")
    if not admission.effective and not admission.settled:
        return
    session.touch()
    session.save()
    if admission.effective:
        tx.announcements.append(Woken(session.id))


def accept_once(
    tx: Tx, key: IdempotencyKey | None, session_id: str, project_id: str, batch: Sequence[InputEvent]
) -> None:
    """`accept` under an idempotency key; a repeated batch has no effect and wakes nobody.

    Raises:
        SessionGone: no such session in the project.
    """
    session = LockedSession.lock(tx, session_id, project_id=project_id)
    run_once(tx, key, lambda: accept(tx, session, batch), session_id=session_id)


def start_turn(session: LockedSession, messages: Sequence[UserMessageInput]) -> TurnRow:
    """A queued turn with its user items on an idle session, and the status that follows."""
    session.touch()
    # Until now the inbox of an idle agent holds reports alone: they came first.
    reports = session.inbox()
    turn = session.insert_turn()
    session.say_turn(wire.TurnCreated, turn)
    apply_reports(session, turn, reports)
    for message in messages:
        add_user_item(session, turn, message.model_dump(mode="json"))
    session.row["status"] = "in_progress"
    session.say_session(wire.SessionInProgress)
    return turn


def add_user_item(session: LockedSession, turn: TurnRow, message: dict[str, object]) -> None:
    """Record one user message where it is applied."""
    data = {"role": "user", "content": message["content"], "phase": None}
    session.say_item_added(session.insert_item(turn, "message", data, status="completed"))


class _Admission:
    """Admits the events of one batch in order, each against the state the ones before it leave."""

    def __init__(self, session: LockedSession) -> None:
        self.session = session
        self.effective = False
        self.settled = False
        self._cancelling = session.is_cancelling()

    def admit(self, event: InputEvent, param: str) -> None:
        match event:
            case MessageInput():
                self._message(event)
            case CancelInput():
                self._cancel()
            case ToolResultInput():
                self._tool_result(event, param)
            case McpApprovalResultInput() | ComputerApprovalResultInput():
                raise NotFound(
                    f"No pending approval request with id '{event.request_id}'.", param=f"{param}.request_id"
                )

    def _message(self, event: MessageInput) -> None:
        session = self.session
        if session.row["turn_id"] is None and not self._cancelling:
            start_turn(session, event.input)
        else:
            # Behind a cancel of an idle root, whose subagents are at work, it would be cancelled with them.
            for message in event.input:
                session.queue_input("message", message.model_dump(mode="json"))
            if session.status == "idle":
                session.row["status"] = "in_progress"
                session.say_session(wire.SessionInProgress)
        self.effective = True

    def _cancel(self) -> None:
        session = self.session
        if session.row["turn_id"] is not None:
            session.queue_input("cancel", {})
            self._cancelling = True
            self.effective = True
            return
        if session.row["subagents_running"]:
            # The root rests, and its subagents do not: their owner ends their turns.
            session.queue_input("cancel", {})
            self._cancelling = True
            self.effective = True
            return
        # Nobody is at work: what the session still holds is dropped here and now.
        held = session.calls("open")
        drop_calls(session, held)
        if held:
            session.touch()
            session.say_session(wire.SessionIdle)
            self.settled = True

    def _tool_result(self, event: ToolResultInput, param: str) -> None:
        call = self.session.call(event.call_id)
        if call is None:
            raise self._unknown_call(event.call_id, param)
        if call.turn_id != event.turn_id:
            raise InvalidRequest(
                f"Tool call {event.call_id} was made in another turn than '{event.turn_id}'. "
                "Send the turn_id and call_id of one entry of required_actions.",
                param=f"{param}.turn_id",
            )
        result = event.model_dump(mode="json", include={"success", "output", "error"})
        match call.state:
            case "answered" | "applied":
                if call.result != result:
                    raise Conflict("The tool call already has a different result.", param=f"{param}.call_id")
            case "dropped":
                raise Conflict(
                    "The turn of this tool call has ended; its result can no longer be used.",
                    param=f"{param}.call_id",
                )
            case "refused":
                raise Conflict(
                    "The tool call was refused by the server and already has a different result.",
                    param=f"{param}.call_id",
                )
            case "open":
                if self._cancelling:
                    raise Conflict(
                        "The turn of this tool call is being cancelled; its result can no longer be used.",
                        param=f"{param}.call_id",
                    )
                self._record(call, result)

    def _record(self, call: CallRow, result: dict[str, object]) -> None:
        session = self.session
        session.update_call(call, state="answered", result=result)
        session.queue_input("result", {"call_id": call.call_id})
        if session.row["turn_id"] is None:
            start_turn(session, ())
        elif session.status == "requires_action" and all(other.is_async for other in session.calls("open")):
            # No event: the owner says so when it has applied the results.
            session.row["status"] = "in_progress"
        self.effective = True

    def _unknown_call(self, call_id: str, param: str) -> InvalidRequest:
        conn, session_id = self.session.tx.conn, self.session.id
        known = conn.execute(
            select(items.c.id).where(items.c.id == call_id, items.c.session_id == session_id)
        ).first()
        kind = "an item" if known is not None else None
        if kind is None:
            known = conn.execute(
                select(turns.c.id).where(turns.c.id == call_id, turns.c.session_id == session_id)
            ).first()
            kind = "a turn" if known is not None else None
        if kind is not None:
            return InvalidRequest(
                f"'{call_id}' is the id of {kind}. Send the call_id of the function call (call_…) as listed "
                "in required_actions.",
                param=f"{param}.call_id",
            )
        # SDK 3.57 retries only this exact text.
        return InvalidRequest(f"Unknown pending tool call: {call_id}", param=f"{param}.call_id")
