"""Sessions that look like another try of an earlier one, where the earlier one should have gone on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.inspect.exports import Export, texts_of
from perdure.inspect.history import int_or_none
from perdure.inspect.jsontext import dump
from perdure.inspect.kinds import finding
from perdure.inspect.links import Finding


@dataclass(frozen=True, slots=True)
class _Beginning:
    """What a session was started for."""

    export: Export
    session_id: str
    created_at: int
    agent: str
    text: str
    metadata: str


def find_retries(exports: Sequence[Export]) -> list[Finding]:
    """A finding for each session that begins like an earlier one of the same agent.

    Two sessions begin alike when the first messages are the same, or when both have the same metadata and
    the earlier one was left unfinished. A session that the server gave up (`failed`) takes no more input,
    and what follows it is no mistake.
    """
    beginnings = sorted(_beginnings(exports), key=lambda each: (each.created_at, each.session_id))
    found = []
    for index, later in enumerate(beginnings):
        for earlier in reversed(beginnings[:index]):
            verdict = _verdict(earlier, later)
            if verdict is not None:
                found.append(verdict)
                break
    return found


def _verdict(earlier: _Beginning, later: _Beginning) -> Finding | None:
    if earlier.session_id == later.session_id or earlier.agent != later.agent:
        return None
    same_text = earlier.text == later.text != ""
    same_metadata = earlier.metadata == later.metadata != ""
    unfinished = _unfinished(earlier.export)
    if not same_text and not (same_metadata and unfinished):
        return None
    alike = " and ".join(
        word for word, same in (("the same message", same_text), ("the same metadata", same_metadata)) if same
    )
    seconds = later.created_at - earlier.created_at
    beginning = f"Session {later.session_id} begins with {alike} as {earlier.session_id}, {seconds} s later"
    status = None if earlier.export.session is None else earlier.export.session.get("status")
    if unfinished and status != "failed":
        text = (
            f"{beginning}, which {unfinished}. Go on with that session: answer what it owes, or send it a "
            "message."
        )
        return finding("retry_in_new_session", text, session_id=later.session_id)
    why = "which failed and takes no more input" if status == "failed" else "which had come to its end"
    return finding("same_beginning", f"{beginning}, {why}.", session_id=later.session_id)


def _unfinished(export: Export) -> str | None:
    """What is still to be done in a session, in words; None when its last turn completed."""
    owed = [action.get("call_id") or action.get("request_id") for action in export.required_actions]
    if owed:
        return f"still waits for {', '.join(str(each) for each in owed)}"
    last = export.turns[-1] if export.turns else {}
    match last.get("status"):
        case "failed" | "cancelled" as status:
            return f"stopped when turn {last.get('id')} {'failed' if status == 'failed' else 'was cancelled'}"
        case "queued" | "in_progress" | "waiting":
            return f"still works on turn {last.get('id')}"
        case _:
            return None


def _beginnings(exports: Iterable[Export]) -> Iterable[_Beginning]:
    for export in exports:
        session = export.session
        if session is None or export.session_id is None:
            continue
        metadata = session.get("metadata")
        yield _Beginning(
            export,
            export.session_id,
            int_or_none(session.get("created_at")) or 0,
            _agent(session.get("agent")),
            _first_text(export),
            dump(dict(sorted(metadata.items()))) if isinstance(metadata, Mapping) and metadata else "",
        )


def _agent(agent: Any) -> str:
    """What makes two agents the same; the id of an agent of one session says nothing."""
    if not isinstance(agent, Mapping):
        return ""
    return dump([agent.get("name"), agent.get("instructions")])


def _first_text(export: Export) -> str:
    said: list[str] = []
    turn_id = None
    for item in export.items:
        if item.get("type") != "message" or item.get("role") != "user":
            if said:
                break
            continue
        if said and item.get("turn_id") != turn_id:
            break
        turn_id = item.get("turn_id")
        said += texts_of(item)
    return " ".join(" ".join(said).split()).casefold()
