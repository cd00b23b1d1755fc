"""What the Responses protocol accepts in a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.providers.rules import (
    EFFORTS,
    VERBOSITIES,
    Violation,
    check,
    check_arguments,
    check_choice,
    check_function,
    check_id,
    check_image,
    check_name,
    check_object,
    check_output_schema,
    check_single_calls_wish,
    check_text,
)

FIELDS = {
    *("model", "input", "instructions", "stream", "store", "include", "tools", "text", "reasoning"),
    *("service_tier", "prompt_cache_key", "prompt_cache_options", "max_output_tokens"),
    *("parallel_tool_calls", "tool_choice", "metadata", "temperature", "top_p", "truncation"),
}
COMPACT_FIELDS = {
    *("instructions", "previous_response_id", "service_tier"),
    *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
}
TIERS = ("auto", "default", "flex", "scale", "priority", "fast", "ultrafast")
MAX_CALL_ID = 64


@dataclass(frozen=True)
class Minted:
    """An item this provider produced, and what must stand beside it when it comes back.

    `needs` is the reasoning before it, `follower` the item right after a reasoning item, `window` what a
    compaction left in front of itself.
    """

    id: str
    kind: str
    model: str
    encrypted: str | None = None
    needs: str | None = None
    follower: str | None = None
    window: tuple[Any, ...] = ()


def check_request(body: Any, minted: Mapping[str, Minted]) -> None:
    check_object(body, "body", required={"model", "input", "stream"}, optional=FIELDS)
    check_text(body["model"], "model")
    check(body["stream"] is True, "This server only streams.", "stream")
    check(body.get("store") is False, "Nothing may be stored here: 'store' must be false.", "store")
    for value in body.get("include", []):
        check_choice(value, ("reasoning.encrypted_content",), "include")
    if "instructions" in body:
        check_text(body["instructions"], "instructions")
    if "reasoning" in body:
        check_object(body["reasoning"], "reasoning", required=(), optional={"effort", "summary"})
        check(body["reasoning"], "Invalid 'reasoning': empty object.", "reasoning")
        check_choice(body["reasoning"].get("effort", "low"), EFFORTS, "reasoning.effort")
        check_choice(
            body["reasoning"].get("summary", "auto"), ("auto", "concise", "detailed"), "reasoning.summary"
        )
    if "text" in body:
        _check_text_options(body["text"])
    check_choice(body.get("service_tier", "auto"), TIERS, "service_tier")
    _check_cache_options(body)
    if "max_output_tokens" in body:
        check(body["max_output_tokens"] >= 16, "Invalid 'max_output_tokens': below 16.", "max_output_tokens")
    check_single_calls_wish(body)
    _check_tools(body.get("tools", []))
    InputCheck(body["model"], minted).check(body["input"])


def check_compact_request(body: Any, minted: Mapping[str, Minted]) -> None:
    check_object(body, "body", required={"model", "input"}, optional=COMPACT_FIELDS)
    check_text(body["model"], "model")
    if "instructions" in body:
        check_text(body["instructions"], "instructions")
    check_choice(body.get("service_tier", "auto"), ("auto", "default", "fast", "flex", "priority"), "tier")
    _check_cache_options(body)
    InputCheck(body["model"], minted).check(body["input"])


def _check_cache_options(body: Any) -> None:
    if "prompt_cache_key" in body:
        check_id(body["prompt_cache_key"], "prompt_cache_key", 64)
    if "prompt_cache_options" in body:
        check_object(body["prompt_cache_options"], "prompt_cache_options", required={"ttl"})
        check_choice(body["prompt_cache_options"]["ttl"], ("30m", "12h"), "prompt_cache_options.ttl")


def _check_text_options(text: Any) -> None:
    check_object(text, "text", required=(), optional={"format", "verbosity"})
    check_choice(text.get("verbosity", "medium"), VERBOSITIES, "text.verbosity")
    wanted = text.get("format", {"type": "text"})
    if wanted.get("type") == "json_schema":
        check_object(
            wanted, "text.format", required={"type", "name", "schema"}, optional={"strict", "description"}
        )
        check_output_schema(wanted, "text.format")
    else:
        check_object(wanted, "text.format", required={"type"})
        check_choice(wanted["type"], ("text", "json_object"), "text.format.type")


def _check_tools(tools: Any) -> None:
    check(isinstance(tools, list), "Invalid type for 'tools': expected an array.", "tools")
    names: set[str] = set()
    for index, tool in enumerate(tools):
        where = f"tools[{index}]"
        check_object(tool, where, required={"type", "name", "parameters", "strict"}, optional={"description"})
        check_choice(tool["type"], ("function",), f"{where}.type")
        check(isinstance(tool["strict"], bool), f"Invalid type for '{where}.strict'.", f"{where}.strict")
        check_function(tool, where, names)


class InputCheck:
    """Reads input items in order and remembers which calls are open."""

    def __init__(self, model: str, minted: Mapping[str, Minted]) -> None:
        self._model = model
        self._minted = minted
        self._ids: set[str] = set()
        self._calls: set[str] = set()
        self._answered: set[str] = set()

    def check(self, items: Any) -> None:
        check(isinstance(items, list) and items, "Invalid 'input': expected items.", "input")
        for index, item in enumerate(items):
            where = f"input[{index}]"
            check(isinstance(item, dict), f"Invalid type for '{where}': expected an object.", where)
            following = items[index + 1] if index + 1 < len(items) else {}
            match item.get("type"):
                case "message":
                    self._message(item, where)
                case "reasoning":
                    self._reasoning(item, where, following)
                case "compaction":
                    self._compaction(item, where, items[:index])
                case "function_call":
                    self._call(item, where)
                case "function_call_output":
                    self._result(item, where)
                case other:
                    raise Violation(f"Invalid value: {other!r}.", f"{where}.type", "invalid_value")
        for call_id in self._calls - self._answered:
            raise Violation(f"No tool output found for function call {call_id}.", "input")

    def _message(self, item: dict[str, Any], where: str) -> None:
        if item.get("role") == "assistant" and "id" in item:
            check_object(
                item, where, required={"type", "role", "id", "status", "content"}, optional={"phase"}
            )
            self._own_item(item, where, "message")
            check_choice(item["status"], ("completed", "incomplete"), f"{where}.status")
            self._parts(item["content"], f"{where}.content", answer=True)
        else:
            check_object(item, where, required={"type", "role", "content"}, optional={"phase"})
            check_choice(item["role"], ("user", "assistant", "system", "developer"), f"{where}.role")
            if isinstance(item["content"], str):
                check_text(item["content"], f"{where}.content")
            else:
                self._parts(item["content"], f"{where}.content", answer=item["role"] == "assistant")
        if "phase" in item:
            check(
                item["role"] == "assistant", "Only messages of the assistant have a phase.", f"{where}.phase"
            )
            check_choice(item["phase"], ("commentary", "final_answer"), f"{where}.phase")

    def _parts(self, parts: Any, where: str, *, answer: bool) -> None:
        check(isinstance(parts, list) and parts, f"Invalid '{where}': expected content.", where)
        for index, part in enumerate(parts):
            here = f"{where}[{index}]"
            check(isinstance(part, dict), f"Invalid type for '{here}': expected an object.", here)
            match part.get("type"):
                case "input_text" if not answer:
                    check_object(part, here, required={"type", "text"})
                    check_text(part["text"], f"{here}.text")
                case "output_text" if answer:
                    check_object(part, here, required={"type", "text"}, optional={"annotations"})
                    check_text(part["text"], f"{here}.text")
                case "input_image" if not answer:
                    check_object(part, here, required={"type", "image_url"}, optional={"detail"})
                    check_choice(
                        part.get("detail", "auto"), ("low", "high", "auto", "original"), f"{here}.detail"
                    )
                    check_image(part["image_url"], f"{here}.image_url")
                case other:
                    raise Violation(f"Invalid value: {other!r}.", f"{here}.type", "invalid_value")

    def _reasoning(self, item: dict[str, Any], where: str, following: Any) -> None:
        check_object(
            item,
            where,
            required={"type", "id", "summary"},
            optional={"encrypted_content", "content", "status"},
        )
        known = self._own_item(item, where, "reasoning")
        check(
            item.get("encrypted_content") == known.encrypted,
            f"The encrypted content for item {known.id} could not be verified.",
            f"{where}.encrypted_content",
            "invalid_encrypted_content",
        )
        check(
            known.encrypted is not None or item.get("content"),
            f"Item with id '{known.id}' not found. Items are not persisted when `store` is set to false.",
            where,
        )
        for index, part in enumerate(item["summary"]):
            check_object(part, f"{where}.summary[{index}]", required={"type", "text"})
            check_choice(part["type"], ("summary_text",), f"{where}.summary[{index}].type")
        check(
            isinstance(following, dict) and known.follower and following.get("id") == known.follower,
            f"Item '{known.id}' of type 'reasoning' was provided without its required following item.",
            where,
        )

    def _compaction(self, item: dict[str, Any], where: str, before: Any) -> None:
        check_object(item, where, required={"type", "id", "encrypted_content"})
        known = self._own_item(item, where, "compaction")
        check(
            item["encrypted_content"] == known.encrypted,
            f"The encrypted content for item {known.id} could not be verified.",
            f"{where}.encrypted_content",
            "invalid_encrypted_content",
        )
        # The real one would not say so; but only the whole window is what it compacted.
        check(tuple(before) == known.window, "The compacted window was changed.", where)

    def _call(self, item: dict[str, Any], where: str) -> None:
        check_object(
            item, where, required={"type", "call_id", "name", "arguments"}, optional={"id", "status"}
        )
        if "id" in item:
            self._own_item(item, where, "function_call")
        call_id = item["call_id"]
        check_id(call_id, f"{where}.call_id", MAX_CALL_ID)
        check(call_id not in self._calls, f"Duplicate function call id {call_id}.", f"{where}.call_id")
        check_name(item["name"], f"{where}.name")
        check_arguments(item["arguments"], f"{where}.arguments")
        self._calls.add(call_id)

    def _result(self, item: dict[str, Any], where: str) -> None:
        check_object(item, where, required={"type", "call_id", "output"})
        call_id, output = item["call_id"], item["output"]
        check_id(call_id, f"{where}.call_id", MAX_CALL_ID)
        check(
            call_id in self._calls,
            f"No tool call found for function call output with call_id {call_id}.",
            "input",
        )
        check(call_id not in self._answered, f"Duplicate output of function call {call_id}.", "input")
        self._answered.add(call_id)
        if isinstance(output, str):
            check_text(output, f"{where}.output")
        else:
            self._parts(output, f"{where}.output", answer=False)

    def _own_item(self, item: dict[str, Any], where: str, kind: str) -> Minted:
        """An item with an id must be one of ours, sent once, to its model, with its reasoning before it."""
        item_id = item["id"]
        check_id(item_id, f"{where}.id", 64)
        known = self._minted.get(item_id)
        if known is None or known.kind != kind or known.model != self._model:
            raise Violation(f"Item with id '{item_id}' not found.", f"{where}.id")
        check(item_id not in self._ids, f"Duplicate item found with id {item_id}.", f"{where}.id")
        self._ids.add(item_id)
        check(
            known.needs is None or known.needs in self._ids,
            f"Item '{item_id}' of type '{kind}' was provided without its required 'reasoning' item:"
            f" '{known.needs}'.",
            where,
        )
        return known
