"""Items, actions and input events as typed links, whatever is missing in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from perdure.inspect.exports import Export, Resource, Thread, texts_of
from perdure.inspect.jsontext import Json, dump
from perdure.inspect.links import Coordination, Message, Owed, Place, Result, Work

Role = Literal["message", "call", "result", "work", "coordination"]

ROLES: Mapping[str, Role] = {
    "message": "message",
    "function_call": "call",
    "function_call_output": "result",
    "reasoning": "work",
    "mcp_call": "work",
    "web_search_call": "work",
    "command_execution": "work",
    "computer_use_call": "work",
    "computer_use_approval_request": "work",
    "computer_use_approval_request_result": "work",
    "agent_message": "coordination",
    "create_subagent_call": "coordination",
    "send_subagent_input_call": "coordination",
    "wait_for_subagents_call": "coordination",
    "interrupt_subagent_call": "coordination",
    "resume_subagent_call": "coordination",
    "close_subagent_call": "coordination",
}
"""Every item type of the protocol, and what it is in a chain."""


@dataclass(frozen=True, slots=True)
class Found:
    """An item with its place and the thread whose list it stands in."""

    item: Resource
    place: Place
    subagent_id: str | None

    @property
    def turn_id(self) -> str | None:
        """The turn the item names."""
        return text_or_none(self.item.get("turn_id"))

    @property
    def call_id(self) -> str | None:
        """The call the item names."""
        return text_or_none(self.item.get("call_id"))


def text_or_none(value: Json) -> str | None:
    """A string as it is; None for anything else."""
    return value if isinstance(value, str) else None


def int_or_none(value: Json) -> int | None:
    """An integer as it is; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def found_items(export: Export) -> Iterator[Found]:
    """Every item of every thread."""
    for number, thread in enumerate(export.threads):
        for index, item in enumerate(thread.items):
            kind = text_or_none(item.get("type")) or "?"
            place = Place(number, index, text_or_none(item.get("id")), kind, text_or_none(item.get("status")))
            yield Found(item, place, subagent_id_of(thread))


def subagent_id_of(thread: Thread) -> str | None:
    """The subagent whose thread it is; None for the root agent."""
    return None if thread.subagent is None else text_or_none(thread.subagent.get("id")) or "?"


def role_of(item: Resource) -> Role:
    """What an item is in a chain; work, for types that are not known."""
    return ROLES.get(str(item.get("type")), "work")


def result_of(found: Found) -> Result:
    """A `function_call_output` item as a result."""
    item = found.item
    status, error = item.get("status"), item.get("error")
    success = None if status == "in_progress" else status == "completed" if status else error is None
    return Result(found.call_id, found.turn_id, success, item.get("output"), error, "item", found.place)


def other_results(export: Export) -> Iterator[Result]:
    """The results that input events and the journal tell of."""
    for event in export.inputs:
        if str(event.get("type")).endswith("tool_result"):
            yield _told(event, "input")
    for entry in export.journal or ():
        if entry.keys() & {"output", "error", "success"}:
            yield _told(entry, "journal")


def _told(entry: Resource, source: Literal["input", "journal"]) -> Result:
    success = entry.get("success")
    return Result(
        text_or_none(entry.get("call_id")),
        text_or_none(entry.get("turn_id")),
        success if isinstance(success, bool) else entry.get("error") is None,
        entry.get("output"),
        entry.get("error"),
        source,
    )


def owed_of(action: Resource) -> Owed:
    """A required action."""
    key = next((action[name] for name in ("call_id", "request_id", "environment_id") if name in action), None)
    request = action.get("request")
    name = action.get("name") or (request.get("name") if isinstance(request, Mapping) else None)
    return Owed(
        text_or_none(action.get("type")) or "?",
        text_or_none(action.get("turn_id")),
        text_or_none(key),
        text_or_none(name),
    )


def message_of(found: Found) -> Message:
    """A message item."""
    item = found.item
    parts = [*texts_of(item)]
    content = item.get("content")
    images = sum(
        isinstance(part, Mapping) and part.get("type") == "input_image"
        for part in (content if isinstance(content, list) else ())
    )
    parts += ["[image]"] * images
    role = text_or_none(item.get("role")) or "?"
    return Message(found.place, role, text_or_none(item.get("phase")), " ".join(parts))


def work_of(found: Found) -> Work:
    """An item of what the server did itself."""
    return Work(found.place, _summary(found.item))


def _summary(item: Resource) -> str:
    match item.get("type"):
        case "mcp_call":
            return f"{item.get('server_label')}.{item.get('name')} {dump(item.get('arguments'))}"
        case "command_execution":
            code = item.get("exit_code")
            return f"{item.get('command')}" + ("" if code is None else f" → {code}")
        case "web_search_call":
            return _first(item.get("action"), "query", "queries", "url")
        case "computer_use_call":
            return str(item.get("title") or "")
        case "computer_use_approval_request" | "computer_use_approval_request_result":
            return str(item.get("request_id") or "")
        case _:
            return " ".join(texts_of(item))


def _first(action: Any, *names: str) -> str:
    if not isinstance(action, Mapping):
        return ""
    found = next((action[name] for name in names if action.get(name)), "")
    return found if isinstance(found, str) else dump(found)


def coordination_of(found: Found) -> Coordination:
    """An item between agents."""
    item = found.item
    sender = item.get("sender_agent_id") or item.get("agent_id")
    several = item.get("recipient_agent_ids")
    recipients = several if isinstance(several, list) else [item.get("recipient_agent_id")]
    return Coordination(
        found.place,
        text_or_none(sender),
        tuple(recipient for recipient in recipients if isinstance(recipient, str)),
        " ".join(texts_of(item)),
    )
