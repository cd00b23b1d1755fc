"""Who created whom: the item of a creation does not name the subagent that came of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from perdure.inspect.exports import Export, Thread, texts_of
from perdure.inspect.history import int_or_none, text_or_none
from perdure.inspect.jsontext import Json
from perdure.inspect.kinds import finding
from perdure.inspect.links import Coordination, Entry, Finding, ThreadLink

CREATE = "create_subagent_call"
Way = Literal["event", "instructions", "order"]
_WAYS: tuple[Way, ...] = ("event", "instructions", "order")


@dataclass(frozen=True, slots=True)
class Linked:
    """The threads with their creations linked, and what could not be."""

    threads: tuple[ThreadLink, ...]
    findings: tuple[Finding, ...]


def link_subagents(export: Export, threads: tuple[ThreadLink, ...]) -> Linked:
    """Say of each `create_subagent_call` which subagent it created.

    Where the stored events are there, they say it. Otherwise the creation and the subagent name the same
    parent, and of several the one with the instructions that were given is taken; of those left, the first
    opened for the first creation.
    """
    free = [*export.subagents]
    free.sort(key=lambda part: int_or_none((part.subagent or {}).get("opened_at")) or 0)
    creations = [
        entry for entry in entries_of(threads) if _is_creation(entry) and entry.place.status != "failed"
    ]
    told = _told_by_events(export)
    links: dict[int, Coordination] = {}
    for way in _WAYS:
        for entry in creations:
            if id(entry) in links or (way == "order" and entry.place.status == "incomplete"):
                continue
            part = next((part for part in free if _may_be(part, entry, way, told)), None)
            if part is None or part.subagent is None:
                continue
            free.remove(part)
            created = text_or_none(part.subagent.get("id"))
            links[id(entry)] = replace(entry, subagent_id=created, linked_by=way)
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


def _told_by_events(export: Export) -> dict[str, str]:
    """The subagent of each creation, by the ids of both: one event follows the other directly."""
    found = {}
    made: tuple[str, Json] | None = None
    for event in export.events or ():
        match event:
            case {
                "type": "agent.session.turn.item.added",
                "item": {"type": "create_subagent_call", "id": str(item_id), "agent_id": sender},
            }:
                made = item_id, sender
                continue
            case {
                "type": "agent.session.subagent.created",
                "subagent": {"id": str(subagent_id), "parent_agent_id": parent},
            } if made is not None and made[1] == parent:
                found[made[0]] = subagent_id
            case _:
                pass
        made = None
    return found


def entries_of(threads: Iterable[ThreadLink]) -> list[Coordination]:
    """What is between agents, thread by thread."""
    every: list[Entry] = [entry for thread in threads for turn in thread.turns for entry in turn.entries]
    return [entry for entry in every if isinstance(entry, Coordination)]


def _is_creation(entry: Coordination) -> bool:
    return entry.place.type == CREATE


def _may_be(part: Thread, entry: Coordination, way: Way, told: Mapping[str, str]) -> bool:
    subagent = part.subagent or {}
    if way == "event":
        return entry.place.id is not None and told.get(entry.place.id) == subagent.get("id")
    parent = text_or_none(subagent.get("parent_agent_id"))
    if parent is not None and entry.sender is not None and parent != entry.sender:
        return False
    return way == "order" or (entry.text != "" and " ".join(texts_of(subagent)) == entry.text)


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
    for entry in entries_of(threads):
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
