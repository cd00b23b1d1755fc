"""Business ids: order numbers and the like, and those that nothing but chat text holds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from perdure.inspect.exports import Export, texts_of
from perdure.inspect.faults import BadQuestion
from perdure.inspect.history import found_items, role_of
from perdure.inspect.jsontext import Json, leaves
from perdure.inspect.kinds import finding
from perdure.inspect.links import Finding

TOKEN = re.compile(r"\w(?:[\w./:#-]{0,62}\w)?")
ID_NAME = re.compile(
    r"(?:^|[_\-.])(?:id|no|nr|number|ref|reference|code|key)$|[a-z](?:Id|ID|No|Number|Ref)$", re.A
)
GUESSED = r"[A-Z]{1,6}-\d{2,12}"
NO_BUSINESS = frozenset(
    {"UTF", "ISO", "SHA", "RFC", "AES", "RSA", "MD", "GPT", "HTTP", "COVID", "UTC", "GMT", "DIN"}
)
PROTOCOL_NAMES = frozenset(
    {
        "session_id", "turn_id", "call_id", "item_id", "agent_id", "subagent_id", "event_id",
        "last_turn_id", "last_call_id",
    }
)  # fmt: skip
MOST_NAMED = 5


def chat_only_ids(export: Export, patterns: Sequence[str] = ()) -> list[Finding]:
    """A finding for each business id that stands in chat text and in no call, result or ledger.

    What a business id looks like is known from `patterns`, from the patterns of the session's tools, and
    from values under names like `order_id`. Of what only looks like one, it is a note.

    Args:
        export: the session.
        patterns: regular expressions for a whole id.

    Raises:
        BadQuestion: one of `patterns` cannot be used.
    """
    for pattern in patterns:
        if _matcher(pattern) is None:
            raise BadQuestion(f"{pattern!r} is no regular expression that can be used for ids.")
    held = {token for text in _held(export) for token in _tokens(text)}
    # What the agent is told by its author is sent with every model call; compaction does not touch it.
    held |= {token for text in _instructions(export) for token in _tokens(text)}
    known = {*patterns, *_tool_patterns(export), *_seen_shapes(export)}
    said: dict[str, list[str]] = {}
    for item_id, text in _chat(export):
        for token in _tokens(text):
            if token not in held and any(char.isdigit() for char in token):
                places = said.setdefault(token, [])
                if item_id not in places:
                    places.append(item_id)
    found = []
    for token, places in said.items():
        if any(_fits(pattern, token) for pattern in known):
            severity = None
        elif _fits(GUESSED, token) and token.partition("-")[0] not in NO_BUSINESS:
            severity = "note"
        else:
            continue
        text = (
            f"{token} stands only in chat text ({', '.join(places[:MOST_NAMED])}"
            + (", …" if len(places) > MOST_NAMED else "")
            + "): no call, result or ledger holds it, and a compaction may drop it."
        )
        found.append(
            finding(
                "id_only_in_chat",
                text,
                session_id=export.session_id,
                items=tuple(places[:MOST_NAMED]),
                severity="note" if severity == "note" else None,
            )
        )
    return found


def _tokens(text: str) -> Iterator[str]:
    """The words of a text that could be ids, and their parts: `order/A-1042` holds `A-1042`."""
    for match in TOKEN.finditer(text):
        yield match[0]
        parts = re.split(r"[/:#.]", match[0])
        if len(parts) > 1:
            yield from (part for part in parts if part)


def _chat(export: Export) -> Iterator[tuple[str, str]]:
    for found in found_items(export):
        if role_of(found.item) in ("message", "coordination"):
            name = found.place.id or f"item {found.place.index}"
            for text in texts_of(found.item):
                # An answer in JSON is data that the application was given, not talk.
                for location, leaf in leaves(text):
                    if not location and isinstance(leaf, str):
                        yield name, leaf


def _held(export: Export) -> Iterator[str]:
    for _, leaf in _data(export):
        if isinstance(leaf, str | int) and not isinstance(leaf, bool):
            yield str(leaf)


def _data(export: Export) -> Iterator[tuple[str | None, Json]]:
    """Every scalar of calls, results, ledger, journal and metadata, with the name it stands under."""
    for found in found_items(export):
        item = found.item
        match role_of(item):
            case "call" | "result" | "work":
                for member in ("arguments", "output", "error", "command"):
                    yield from _named(item.get(member))
            case "message":
                for text in texts_of(item):
                    yield from ((name, leaf) for name, leaf in _named(text) if name is not None)
            case "coordination":
                pass
    session = export.session or {}
    for value in (export.ledger, export.journal, session.get("metadata")):
        yield from _named(list(value) if isinstance(value, tuple) else value)
    for action in export.required_actions:
        yield from _named(action.get("arguments"))
    for event in export.inputs:
        yield from _named(event.get("output"))


def _named(value: Json) -> Iterator[tuple[str | None, Json]]:
    for location, leaf in leaves(value):
        names = [step for step in location if isinstance(step, str)]
        yield (names[-1] if names else None), leaf


def _instructions(export: Export) -> Iterator[str]:
    agent = (export.session or {}).get("agent")
    if isinstance(agent, Mapping) and isinstance(agent.get("instructions"), str):
        yield agent["instructions"]


def _tool_patterns(export: Export) -> Iterator[str]:
    agent = (export.session or {}).get("agent")
    tools = agent.get("tools") if isinstance(agent, Mapping) else None
    for tool in tools if isinstance(tools, list) else ():
        for location, leaf in leaves(tool.get("parameters") if isinstance(tool, Mapping) else None):
            # Only a pattern for the whole value tells what a value looks like.
            if (
                location[-1:] == ("pattern",)
                and isinstance(leaf, str)
                and leaf[:1] == "^"
                and leaf[-1:] == "$"
            ):
                yield leaf[1:-1]


def _seen_shapes(export: Export) -> set[str]:
    """Patterns of the values that stand under names of ids."""
    return {
        shape
        for name, leaf in _data(export)
        if name is not None and ID_NAME.search(name) and name not in PROTOCOL_NAMES and isinstance(leaf, str)
        if (shape := _shape(leaf)) is not None
    }


def _shape(value: str) -> str | None:
    """`A-1042` becomes a pattern for one capital, a dash and four digits; None for what has no shape."""
    if not TOKEN.fullmatch(value) or not any(char.isdigit() for char in value):
        return None
    if value.isdigit() and len(value) < 6:
        return None
    parts = []
    for match in re.finditer(r"[A-Z]+|[a-z]+|[0-9]+|[^A-Za-z0-9]", value):
        run = match[0]
        kind = "[A-Z]" if "A" <= run[0] <= "Z" else "[a-z]" if "a" <= run[0] <= "z" else r"\d"
        parts.append(re.escape(run) if not (run.isascii() and run.isalnum()) else f"{kind}{{{len(run)}}}")
    return "".join(parts)


def _fits(pattern: str, token: str) -> bool:
    matcher = _matcher(pattern)
    return matcher is not None and bool(matcher.is_valid(token))


@cache
def _matcher(pattern: str) -> Any:
    """A matcher that takes linear time whatever the pattern; None for a pattern it cannot take."""
    import jsonschema_rs

    schema = {"type": "string", "pattern": f"^(?:{pattern})$"}
    try:
        return jsonschema_rs.validator_for(schema, pattern_options=jsonschema_rs.RegexOptions())
    except (ValueError, jsonschema_rs.ValidationError):
        return None


def ids_in(values: Iterable[Json]) -> set[str]:
    """The words of values that hold a digit; for finding calls by a business id."""
    return {token for value in values for _, leaf in leaves(value) for token in _tokens(str(leaf))}
