"""What any provider accepts: ids, names, arguments and labelled texts of an outgoing request.

History may hold what one provider wrote and another refuses. Everything here is deterministic, so a
conversation is the same bytes each time and stays in the provider's prompt cache.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from perdure.models.jsontext import encode
from perdure.models.messages import (
    Entry,
    FunctionCall,
    FunctionResult,
    ImagePart,
    Part,
    ServerNote,
    TextPart,
    UserMessage,
)

MAX_NAME = 64
MAX_BROKEN_ARGUMENTS = 2000

NOTE_START = "[Note from the server. The user did not write this.]"
NOTE_END = "[End of the note]"
CALL_FAILED = "[The call failed]"
NO_OUTPUT = "(no output)"

_LABEL = re.compile(r"\[\s*(?:Note\s+from\s+the\s+server|End\s+of\s+the\s+note)[^\]\n]*\]", re.IGNORECASE)
_ID = re.compile(r"[A-Za-z0-9_-]+")
_NOT_OF_A_NAME = re.compile(r"[^A-Za-z0-9_-]")
_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def call_id(ours: str, longest: int = 64) -> str:
    """Our call id, or one made from it with `A-Z a-z 0-9 _ -` and at most `longest` (>= 37) characters."""
    if len(ours) <= longest and _ID.fullmatch(ours):
        return ours
    return f"call_{hashlib.sha256(ours.encode('utf-8', 'replace')).hexdigest()[:32]}"


def short_call_id(ours: str) -> str:
    """Nine letters and digits made from our call id, for providers that take nothing else."""
    number = int.from_bytes(hashlib.sha256(ours.encode("utf-8", "replace")).digest()[:8], "big")
    digits = []
    for _ in range(9):
        number, digit = divmod(number, 62)
        digits.append(_BASE62[digit])
    return "".join(digits)


def function_name(name: str) -> str:
    """A name a provider takes back; models invent names with dots, blanks or nothing in them."""
    return _NOT_OF_A_NAME.sub("_", name)[:MAX_NAME] or "unnamed"


def arguments_text(arguments: str) -> str:
    """Arguments that are a JSON object, as they are; anything else quoted inside one.

    Chat templates of many servers parse the arguments of old calls and fail on what is no object.
    """
    if not arguments.strip():
        return "{}"
    try:
        if isinstance(orjson.loads(arguments), dict):
            return arguments
    except ValueError:
        pass
    return encode({"not_a_json_object": arguments[:MAX_BROKEN_ARGUMENTS]}).decode()


def result_content(result: FunctionResult) -> str | tuple[Part, ...]:
    """The content of a call's result, never empty, with a failure marked in its text."""
    if isinstance(result.content, str):
        text = result.content or NO_OUTPUT
        return f"{CALL_FAILED}\n{text}" if result.failed else text
    parts = written(result.content)
    if result.failed:
        parts = (TextPart(CALL_FAILED), *parts)
    return parts or NO_OUTPUT


def note_content(note: ServerNote) -> tuple[Part, ...]:
    """The content of a server's note inside its label, to be sent in the user's role; () if it has none."""
    parts = tuple(_inside(part) for part in written(note.content))
    if not parts:
        return ()
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    if len(texts) == len(parts):
        return (TextPart("\n".join((NOTE_START, *texts, NOTE_END))),)
    return (TextPart(NOTE_START), *parts, TextPart(NOTE_END))


def _inside(part: Part) -> Part:
    """A part that cannot end the note: what others wrote in it stays a part of it."""
    if isinstance(part, ImagePart) or "[" not in part.text:
        return part
    return TextPart(_LABEL.sub(lambda found: f"({found[0][1:-1]})", part.text))


def written(content: tuple[Part, ...]) -> tuple[Part, ...]:
    """The parts without empty texts, which providers refuse."""
    return tuple(part for part in content if isinstance(part, ImagePart) or part.text)


def with_schema(instructions: str, schema: Mapping[str, Any]) -> str:
    """Instructions that ask in words for what the provider cannot enforce."""
    wish = (
        "Your final answer must be one JSON document that is valid against this JSON Schema."
        " Write only the JSON: no text around it, no code fence.\n" + encode(dict(schema)).decode()
    )
    return f"{instructions}\n\n{wish}" if instructions else wish


def root_object(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """A function's parameters with the `type` and `properties` that providers demand of an object."""
    return {"type": "object", "properties": {}, **parameters}


def one_call_at_a_time(entries: Sequence[Entry]) -> list[Entry]:
    """The entries with every result right behind its call, as if no two calls had been made at once."""
    results = {entry.call_id: entry for entry in entries if isinstance(entry, FunctionResult)}
    ordered: list[Entry] = []
    for entry in entries:
        if isinstance(entry, FunctionCall):
            ordered.append(entry)
            if (result := results.pop(entry.call_id, None)) is not None:
                ordered.append(result)
        elif not isinstance(entry, FunctionResult) or entry.call_id in results:
            ordered.append(entry)
    return ordered


def results_next_to_calls(entries: Sequence[Entry]) -> list[Entry]:
    """The entries with whatever stands between the calls of a step and their results moved behind them."""
    ordered: list[Entry] = []
    open_calls: set[str] = set()
    waiting: list[Entry] = []
    results_began = False
    for entry in entries:
        if isinstance(entry, FunctionResult):
            ordered.append(entry)
            open_calls.discard(entry.call_id)
            results_began = True
            if not open_calls:
                ordered += waiting
                waiting = []
                results_began = False
        elif open_calls and (results_began or isinstance(entry, UserMessage | ServerNote)):
            waiting.append(entry)
        else:
            ordered.append(entry)
            if isinstance(entry, FunctionCall):
                open_calls.add(entry.call_id)
    return ordered + waiting
