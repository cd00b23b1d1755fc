"""Who created whom: the item of a creation does not name the subagent that came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from perdure.inspect.exports import Export, Thread, texts_of
from perdure.inspect.history import int_or_none, text_or_none
from perdure.inspect.kinds import finding
from perdure.inspect.links import Coordination, Entry, Finding, ThreadLink

CREATE = "create_subagent_call"


@dataclass(frozen=True, slots=True)
class Linked:
    """The threads with their creations linked, and what could not be."""

    threads: tuple[ThreadLink, ...]
    findings: tuple[Finding, ...]


def link_subagents(export: Export, threads: tuple[ThreadLink, ...]) -> Linked:
    """Say of each `create_subagent_call` which subagent it created.

    The creation and the subagent name the same parent. Of several, the one with the instructions that
    were given is taken; of those left, the first opened for the first creation.
    """
    free = [*export.subagents]
    free.sort(key=lambda part: int_or_none((part.subagent or {}).get("opened_at")) or 0)
    creations = [entry for entry in _entries(threads) if _is_creation(entry)]
    links: dict[int, Coordination] = {}
    for by_order in (False, True):
        for entry in creations:
            if id(entry) in links or (by_order and entry.place.status in ("failed", "incomplete")):
                continue
            part = next((part for part in free if _may_be(part, entry, by_order)), None)
            if part is None or part.subagent is None:
                continue
            free.remove(part)
            created = text_or_none(part.subagent.get("id"))
            links[id(entry)] = replace(
                entry, subagent_id=created, linked_by="order" if by_order else "instructions"
            )
    found = [*_unlinked(export, creations, links, free), *_unknown_recipients(export, threads)]
    turned = tuple(
        replace(
            thread,
            turns=tuple(
                replace(turn, entries=tuple(links.get(id(entry), entry) for entry in turn.entries))
                for turn in thread.turns
            ),
        )
        for thread in threads
    )
    return Linked(turned, tuple(found))


def _entries(threads: tuple[ThreadLink, ...]) -> list[Coordination]:
    every: list[Entry] = [entry for thread in threads for turn in thread.turns for entry in turn.entries]
    return [entry for entry in every if isinstance(entry, Coordination)]


def _is_creation(entry: Coordination) -> bool:
    return entry.place.type == CREATE


def _may_be(part: Thread, entry: Coordination, by_order: bool) -> bool:
    subagent = part.subagent or {}
    parent = text_or_none(subagent.get("parent_agent_id"))
    if parent is not None and entry.sender is not None and parent != entry.sender:
        return False
    return by_order or (entry.text != "" and " ".join(texts_of(subagent)) == entry.text)


def _unlinked(
    export: Export, creations: list[Coordination], links: Mapping[int, Coordination], free: list[Thread]
) -> list[Finding]:
    found = []
    for entry in creations:
        if id(entry) not in links and entry.place.status == "completed":
            text = (
                f"{CREATE} {entry.place.id} completed, and no subagent of the session fits it. A completed "
                "creation says that the task was handed out, not that it is done."
            )
            found.append(
                finding("subagent_not_linked", text, session_id=export.session_id, items=(entry.place.id,))
            )
    for part in free:
        subagent = part.subagent or {}
        text = f"Subagent {subagent.get('id')} is there, and no item of the session created it."
        found.append(finding("subagent_not_linked", text, session_id=export.session_id))
    return found


def _unknown_recipients(export: Export, threads: tuple[ThreadLink, ...]) -> list[Finding]:
    known = {name for thread in threads for name in (thread.agent_id, thread.name) if name is not None}
    known |= {
        str(turn.get("agent_id")) for part in export.threads for turn in part.turns if turn.get("agent_id")
    }
    if export.session is None:
        return []
    found = []
    for entry in _entries(threads):
        strangers = [name for name in (entry.sender, *entry.recipients) if name and name not in known]
        if strangers:
            text = (
                f"{entry.place.type} {entry.place.id} names {', '.join(strangers)}, and the session has no "
                "such agent."
            )
            found.append(
                finding("unknown_recipient", text, session_id=export.session_id, items=(entry.place.id,))
            )
    return found
