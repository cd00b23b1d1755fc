"""What the states of a session and its turns say, and what they are mistaken for."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.inspect.exports import Export
from perdure.inspect.jsontext import Json
from perdure.inspect.kinds import finding
from perdure.inspect.links import Call, Chain, Finding, ThreadLink, TurnLink


def check_states(export: Export, chain: Chain) -> list[Finding]:
    """What is to be said about the session and its turns as a whole."""
    found = [*_twins(chain), *_session(export, chain)]
    root, *subagents = chain.threads
    found += _turns(chain, root)
    for thread in subagents:
        found += _subagent(chain, thread)
    return found


def _session(export: Export, chain: Chain) -> list[Finding]:
    if export.session is None:
        if not export.items:
            return []
        text = "There is no session here, only items. Only the session's required_actions say what is owed."
        return [finding("debt_unknown", text)]
    found = []
    if not export.settled:
        text = (
            "The session changed while it was read: items and required actions may be of different moments."
        )
        found.append(finding("not_settled", text, session_id=chain.session_id))
    if chain.status == "failed":
        because = f": {chain.error}" if chain.error else ""
        text = f"The session failed{because}. It takes no more input; create a new one."
        found.append(finding("session_failed", text, session_id=chain.session_id))
    return found


def _turns(chain: Chain, root: ThreadLink) -> list[Finding]:
    found = []
    listed = [turn for turn in root.turns if turn.is_listed]
    for turn in listed:
        is_last = turn is listed[-1]
        because = _reason(turn.error)
        match turn.status:
            case "failed" if is_last and chain.status == "idle":
                text = (
                    f"The session is idle because turn {turn.id} failed{because}. Idle means that nothing "
                    "runs, not that the work is done."
                )
                found.append(_of_turn("idle_after_failure", text, chain, turn))
            case "failed":
                found.append(_of_turn("turn_failed", f"Turn {turn.id} failed{because}.", chain, turn))
            case "cancelled" if is_last and chain.status == "idle":
                text = f"The session is idle because turn {turn.id} was cancelled, not because it is done."
                found.append(_of_turn("idle_after_cancel", text, chain, turn))
            case "completed":
                failed = [each for each in turn.entries if isinstance(each, Call) and each.state == "failed"]
                for call in failed:
                    error = next((result.error for result in call.results if result.error), None)
                    text = (
                        f"Turn {turn.id} completed, and its call {call.call_id} of {call.name} failed"
                        + (f": {error}" if isinstance(error, str) else "")
                        + ". A completed turn does not say that every tool succeeded."
                    )
                    found.append(_of_turn("tool_failed", text, chain, turn, call.call_id))
            case _:
                pass
    return found


def _subagent(chain: Chain, thread: ThreadLink) -> list[Finding]:
    listed = [turn for turn in thread.turns if turn.is_listed]
    if listed and thread.is_running and chain.status == "idle":
        text = (
            f"Subagent {thread.subagent_id} is at work in turn {listed[-1].id} while the session is idle. "
            "That is no fault: its report waits for the next turn of the agent that created it. Until it has "
            "ended the session cannot be deleted; a cancel ends it."
        )
        return [_of_turn("subagent_running", text, chain, listed[-1])]
    if not listed or listed[-1].status not in ("failed", "cancelled") or listed[-1].report == "told_by_call":
        return []
    turn = listed[-1]
    text = (
        f"Turn {turn.id} of subagent {thread.subagent_id} was {turn.status}{_reason(turn.error)}."
        if turn.status == "cancelled"
        else f"Turn {turn.id} of subagent {thread.subagent_id} failed{_reason(turn.error)}."
    )
    return [
        _of_turn("subagent_failed", text + " The call that created it completed all the same.", chain, turn)
    ]


def _twins(chain: Chain) -> list[Finding]:
    seen: dict[tuple[str | None, str | None], str | None] = {}
    found = []
    for call in chain.calls():
        if call.place is None or call.call_id is None:
            continue
        key = call.turn_id, call.call_id
        if key in seen:
            text = f"Call {call.call_id} of turn {call.turn_id} is in the items twice."
            places = (seen[key], call.place.id)
            found.append(
                finding(
                    "call_twice",
                    text,
                    session_id=chain.session_id,
                    turn_id=call.turn_id,
                    call_id=call.call_id,
                    items=places,
                )
            )
        seen[key] = call.place.id
    return found


def _reason(error: Json) -> str:
    match error:
        case {"code": code, "message": message}:
            return f" ({code}: {message})"
        case Mapping() | None:
            return ""
        case _:
            return f" ({error})"


def _of_turn(kind: str, text: str, chain: Chain, turn: TurnLink, call_id: str | None = None) -> Finding:
    return finding(kind, text, session_id=chain.session_id, turn_id=turn.id, call_id=call_id)
