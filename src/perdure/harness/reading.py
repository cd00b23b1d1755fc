"""`read_result`: reading on in a result that the model was shown in part. The server answers it itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.harness.excerpts import READ_RESULT, byte_size, byte_slice
from perdure.models.messages import CallDone, FunctionSpec
from perdure.schema.texts import ArgumentFault, parse_arguments
from perdure.store.compactions import read_call, read_item
from perdure.store.coordination import COORDINATION_ITEMS
from perdure.store.engine import Store

READ_RESULT_SPEC = FunctionSpec(
    READ_RESULT,
    "Reads a part of a stored result that was too large to be shown whole.",
    {
        "type": "object",
        "properties": {
            "call_id": {"type": "string", "description": "The call_id that the notice in the result names."},
            "offset": {"type": "integer", "minimum": 0, "description": "The byte to begin at."},
        },
        "required": ["call_id", "offset"],
        "additionalProperties": False,
    },
)
FRAME_BYTES = 200
"""Room for what is said around a part, so that it is not cut again."""


async def read_parts(
    store: Store, session_id: str, agent_id: str, calls: Sequence[CallDone], most: int
) -> Mapping[int, str]:
    """The answers to calls of `read_result`, by output number; each has at most `most` bytes."""
    answers: dict[int, str] = {}
    for call in calls:
        if call.name != READ_RESULT:
            continue
        arguments = parse_arguments(call.arguments)
        if isinstance(arguments, ArgumentFault):
            continue  # answered as any call whose arguments are no JSON
        call_id, offset = arguments.get("call_id"), arguments.get("offset", 0)
        if not isinstance(call_id, str) or not isinstance(offset, int) or offset < 0:
            answers[call.output] = "Give a call_id and an offset of 0 or more."
            continue
        text = await _stored(store, session_id, agent_id, call_id)
        if text is None:
            answers[call.output] = f"There is no stored result of the call {call_id[:80]}."
            continue
        answers[call.output] = _part(text, offset, most - FRAME_BYTES)
    return answers


async def _stored(store: Store, session_id: str, agent_id: str, place: str) -> str | None:
    """The whole text that an agent was shown in part: a call's result, or what subagents told it."""
    call = await store.read(read_call, session_id, agent_id, place)
    if call is not None:
        return None if call.result is None else _text(call.result)
    item = await store.read(read_item, session_id, agent_id, place)
    if item is None:
        return None
    if item.type == "agent_message":
        return "".join(part["text"] for part in item.data["content"])
    return (item.private or {}).get("result") if item.type in COORDINATION_ITEMS else None


def _part(text: str, offset: int, most: int) -> str:
    total = byte_size(text)
    part = byte_slice(text, offset, offset + most)
    end = min(total, offset + most)
    if end >= total:
        rest = "This is the end of the result."
    else:
        # What a cut character takes is read again.
        end = offset + byte_size(part) if text.isascii() else end - 3
        rest = f"Read on with offset {end}."
    return f"Bytes {offset:,} to {min(end, total):,} of {total:,}. {rest}\n{part}"


def _text(result: Mapping[str, Any]) -> str:
    content = result["output"] if result["success"] else result["error"] or result["output"]
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "[image]") for part in content or ())
