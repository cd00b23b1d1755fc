"""What can be found in a chain, each kind with what it means."""

from __future__ import annotations

from perdure.inspect.links import Finding, Severity

KINDS: dict[str, tuple[Severity, str]] = {
    "result_id_drifted": ("problem", "a result names a call_id that is almost that of a call, and is not"),
    "result_turn_drifted": ("problem", "a result names the call, but another turn"),
    "item_id_as_call_id": ("problem", "a result names the id of the call's item in place of its call_id"),
    "result_without_call": ("problem", "a result belongs to no call"),
    "result_in_other_thread": ("problem", "a result stands in the items of another agent than its call"),
    "answered_twice": ("problem", "a call has more than one result"),
    "output_not_text": ("problem", "an output is an object where a string or content parts belong"),
    "call_twice": ("problem", "two items are the same call"),
    "function_call_by_subagent": ("problem", "a subagent called a function, which only the main agent may"),
    "owed_but_answered": ("problem", "required_actions lists a call that has a result"),
    "owed_turn_drifted": ("problem", "required_actions and the items name different turns for one call"),
    "idle_after_failure": ("problem", "the session is idle because its last turn failed; idle is no success"),
    "session_failed": ("problem", "the session failed and takes no more input"),
    "unknown_turn": ("problem", "an item names a turn that the session does not list"),
    "wrong_thread": ("problem", "an item stands in another agent's list than the turn it belongs to"),
    "unknown_recipient": ("problem", "a message between agents names an agent that is not there"),
    "report_missing": ("problem", "a subagent's turn ended, and the agent that created it was not told"),
    "reported_twice": ("problem", "a subagent's turn was reported more than once"),
    "id_only_in_chat": ("problem", "a business id stands in chat text alone, where compaction may drop it"),
    "retry_in_new_session": ("problem", "a session begins like an earlier one that was left unfinished"),
    "ledger_of_other_session": ("problem", "the ledger names another session"),
    "ledger_unknown_call": ("problem", "the ledger names a call that the session does not have"),
    "ledger_awaits_nothing": ("problem", "the ledger waits for a call that is not owed"),
    "call_not_owed": ("note", "a call in the history has no result, and none is owed"),
    "call_dropped": ("note", "a call ended with its turn, before its result was applied"),
    "sent_but_owed": ("note", "a result was sent for a call that is still owed"),
    "debt_unknown": ("note", "there is no session, so nothing says what is owed"),
    "tool_failed": ("note", "a turn completed although a call of it failed"),
    "turn_failed": ("note", "an earlier turn failed"),
    "idle_after_cancel": ("note", "the session is idle because its last turn was cancelled"),
    "unknown_item_type": ("note", "an item has a type that the protocol does not have"),
    "subagent_failed": ("note", "a subagent's last turn did not complete"),
    "subagent_not_linked": ("note", "a subagent and the call that created it cannot be matched"),
    "subagent_running": ("note", "a subagent is at work while the session is idle"),
    "same_beginning": ("note", "a session begins like an earlier one that ended"),
    "not_settled": ("note", "the session changed while it was read"),
}
"""Each kind of finding: its severity and its meaning. A `problem` makes `perdure chain --check` fail."""


def finding(
    kind: str,
    text: str,
    *,
    session_id: str | None = None,
    turn_id: str | None = None,
    call_id: str | None = None,
    items: tuple[str | None, ...] = (),
    severity: Severity | None = None,
) -> Finding:
    """A finding of a known kind, with the severity of its kind unless another is given."""
    named = tuple(item for item in items if item is not None)
    return Finding(kind, severity or KINDS[kind][0], text, session_id, turn_id, call_id, named)
