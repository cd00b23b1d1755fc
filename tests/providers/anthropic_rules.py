"""What Anthropic's Messages API accepts in a request."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.providers.rules import (
    Violation,
    check,
    check_choice,
    check_id,
    check_name,
    check_newest_draft,
    check_object,
    is_reachable,
    is_readable,
    kind_of,
)

FIELDS = {
    *("model", "messages", "max_tokens", "stream", "system", "tools", "tool_choice", "thinking"),
    *("output_config", "service_tier", "speed", "cache_control", "metadata", "stop_sequences"),
}
EFFORTS = ("low", "medium", "high", "xhigh", "max")
MEDIA = ("image/jpeg", "image/png", "image/gif", "image/webp")
THINKING = ("thinking", "redacted_thinking")
MOST_OUTPUT = 128_000
MAX_IMAGE = 10 * 1024 * 1024
MAX_CALL_ID = 64
PROPERTY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
OUTPUT_KEYWORDS = {
    *("$defs", "$ref", "additionalProperties", "anyOf", "allOf", "const", "default", "definitions"),
    *("description", "enum", "format", "items", "minItems", "properties", "required", "title", "type"),
}


@dataclass(frozen=True)
class Minted:
    """A thinking block this provider produced.

    `follower` is the block right after it, `prefix` everything before it; see `fingerprint`.
    """

    block: Mapping[str, Any]
    model: str
    follower: str | None
    prefix: str


def fingerprint(value: Any) -> str:
    """A hash of a JSON value without its cache breakpoints."""
    return hashlib.sha256(json.dumps(_bare(value), sort_keys=True).encode()).hexdigest()


def blocks_of(message: Mapping[str, Any]) -> Any:
    """The content of a message, whose short form is one text."""
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def shape(block: Mapping[str, Any] | None) -> str | None:
    """What a block says, whatever its id."""
    if block is None:
        return None
    said = {key: block[key] for key in ("type", "text", "name", "input") if key in block}
    return fingerprint(said)


def _bare(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _bare(part) for key, part in value.items() if key != "cache_control"}
    return [_bare(part) for part in value] if isinstance(value, list) else value


def check_request(body: Any, minted: Mapping[str, Minted], *, bound: bool) -> None:
    """Raise `Violation` for what the API refuses; `bound`: thinking belongs to what stood before it."""
    check_object(body, "body", required={"model", "messages", "max_tokens", "stream"}, optional=FIELDS)
    check(isinstance(body["model"], str) and body["model"], "Field required", "model")
    check(body["stream"] is True, "This server only streams.", "stream")
    limit = body["max_tokens"]
    check(isinstance(limit, int) and limit >= 1, "Input should be greater than or equal to 1", "max_tokens")
    check(
        limit <= MOST_OUTPUT,
        f"max_tokens: {limit} > {MOST_OUTPUT}, which is the maximum allowed number of output tokens",
        "max_tokens",
    )
    if "system" in body:
        _check_texts(body["system"], "system")
    _check_thinking(body)
    _check_output(body.get("output_config"))
    check_choice(body.get("service_tier", "auto"), ("auto", "standard_only"), "service_tier")
    check_choice(body.get("speed", "standard"), ("standard", "fast"), "speed")
    _check_tools(body)
    _check_breakpoints(body)
    MessageCheck(body, minted, bound).check()


def _check_texts(content: Any, where: str) -> None:
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    check(isinstance(blocks, list) and blocks, "Expected content.", where)
    for index, block in enumerate(blocks):
        here = f"{where}.{index}"
        check_object(block, here, required={"type", "text"}, optional={"cache_control"})
        check_choice(block["type"], ("text",), f"{here}.type")
        _check_text(block["text"], here)


def _check_text(text: Any, where: str) -> None:
    check(isinstance(text, str), "Input should be a valid string", where)
    check(text != "", "text content blocks must be non-empty", where)
    check(text.strip(), "text content blocks must contain non-whitespace text", where)


def _check_thinking(body: Mapping[str, Any]) -> None:
    config = body.get("thinking")
    if config is None:
        return
    check(isinstance(config, dict), "Input should be an object", "thinking")
    match config.get("type"):
        case "adaptive":
            check_object(config, "thinking", required={"type"}, optional={"display"})
        case "enabled":
            check_object(config, "thinking", required={"type", "budget_tokens"}, optional={"display"})
            budget = config["budget_tokens"]
            check(budget >= 1024, "Input should be greater than or equal to 1024", "thinking.budget_tokens")
            check(
                budget < body["max_tokens"],
                "`max_tokens` must be greater than `thinking.budget_tokens`",
                "max_tokens",
            )
        case "disabled" | "between_tools":
            check_object(config, "thinking", required={"type"})
        case other:
            raise Violation(f"Input tag {other!r} does not match any of the expected tags", "thinking")
    check_choice(config.get("display", "omitted"), ("summarized", "omitted"), "thinking.display")


def _check_output(config: Any) -> None:
    if config is None:
        return
    check_object(config, "output_config", required=(), optional={"effort", "format"})
    check(config, "Expected a setting.", "output_config")
    check_choice(config.get("effort", "low"), EFFORTS, "output_config.effort")
    if "format" in config:
        check_object(config["format"], "output_config.format", required={"type", "schema"})
        check_choice(config["format"]["type"], ("json_schema",), "output_config.format.type")
        _check_closed(config["format"]["schema"], "output_config.format.schema")


def _check_closed(schema: Any, where: str) -> None:
    if isinstance(schema, list):
        for index, part in enumerate(schema):
            _check_closed(part, f"{where}.{index}")
    if not isinstance(schema, dict):
        return
    unknown = sorted(schema.keys() - OUTPUT_KEYWORDS)
    check(not unknown, f"For '{schema.get('type')}' type, properties {unknown} are not supported", where)
    check({"type", "anyOf", "allOf", "enum", "const", "$ref"} & schema.keys(), "A schema needs a type", where)
    if schema.get("type") == "object" or "properties" in schema:
        closed = schema.get("additionalProperties") is False
        check(closed, "'additionalProperties' must be explicitly set to false", where)
    for name in ("properties", "$defs", "definitions"):
        for key, part in schema.get(name, {}).items():
            _check_closed(part, f"{where}.{name}.{key}")
    for name in ("items", "anyOf", "allOf"):
        _check_closed(schema.get(name), f"{where}.{name}")


def _check_tools(body: Mapping[str, Any]) -> None:
    tools = body.get("tools", [])
    check(isinstance(tools, list), "Input should be a valid list", "tools")
    names: set[str] = set()
    for index, tool in enumerate(tools):
        where = f"tools.{index}"
        optional = {"description", "type", "cache_control", "strict"}
        check_object(tool, where, required={"name", "input_schema"}, optional=optional)
        check_name(tool["name"], f"{where}.name")
        check(tool["name"] not in names, "Tool names must be unique.", "tools")
        names.add(tool["name"])
        check(tool.get("description", "x"), "Input should have at least 1 character", where)
        _check_input_schema(tool["input_schema"], f"{where}.custom.input_schema")
    choice = body.get("tool_choice", {"type": "auto"})
    check_choice(choice.get("type"), ("auto", "any", "none", "tool"), "tool_choice.type")
    alone = set() if choice["type"] == "none" else {"disable_parallel_tool_use"}
    check_object(choice, "tool_choice", required={"type"}, optional=alone)
    check(isinstance(choice.get("disable_parallel_tool_use", True), bool), "Input should be a valid boolean")
    if "tool_choice" in body:
        check(tools, "tool_choice may only be specified while providing tools", "tool_choice")
        thinks = body.get("thinking", {}).get("type") in ("enabled", "adaptive")
        check(
            not thinks or choice["type"] in ("auto", "none"),
            "Thinking may not be enabled when tool_choice forces tool use.",
            "tool_choice",
        )


def _check_input_schema(schema: Any, where: str) -> None:
    check(isinstance(schema, dict), "Input should be a valid dictionary", where)
    check(schema.get("type") == "object", "Input should be 'object'", f"{where}.type")
    unions = {"oneOf", "allOf", "anyOf"} & schema.keys()
    check(not unions, "input_schema does not support oneOf, allOf, or anyOf at the top level", where)
    check_newest_draft(schema, "JSON schema is invalid", where)
    _check_properties(schema, where)


def _check_properties(schema: Any, where: str) -> None:
    if isinstance(schema, list):
        for part in schema:
            _check_properties(part, where)
    if not isinstance(schema, dict):
        return
    for key, part in schema.get("properties", {}).items():
        said = "Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'"
        check(PROPERTY.fullmatch(key), said, f"{where}.properties")
        _check_properties(part, where)
    for name in ("items", "prefixItems", "anyOf", "oneOf", "allOf", "additionalProperties"):
        _check_properties(schema.get(name), where)
    for name in ("$defs", "definitions"):
        for part in schema.get(name, {}).values():
            _check_properties(part, where)


def _check_breakpoints(body: Mapping[str, Any]) -> None:
    """At most four breakpoints, the lasting ones first, none on thinking."""
    blocks = [*body.get("tools", [])]
    blocks += body["system"] if isinstance(body.get("system"), list) else []
    for message in body["messages"] if isinstance(body["messages"], list) else []:
        if isinstance(message, dict) and isinstance(message.get("content"), list):
            blocks += message["content"]
    marks = [block for block in blocks if isinstance(block, dict) and "cache_control" in block]
    check(len(marks) <= 4, f"A maximum of 4 blocks with cache_control may be provided. Found {len(marks)}.")
    short = False
    for block in marks:
        control = block["cache_control"]
        check_object(control, "cache_control", required={"type"}, optional={"ttl"})
        check_choice(control["type"], ("ephemeral",), "cache_control.type")
        check_choice(control.get("ttl", "5m"), ("5m", "1h"), "cache_control.ttl")
        lasts = control.get("ttl") == "1h"
        check(not (lasts and short), "a ttl='1h' block must not come after a ttl='5m' block", "cache_control")
        short = short or not lasts
        check(block.get("type") not in THINKING, "Extra inputs are not permitted", "cache_control")


class MessageCheck:
    """Reads messages in order and remembers which calls of the last assistant message are open."""

    def __init__(self, body: Mapping[str, Any], minted: Mapping[str, Minted], bound: bool) -> None:
        self._body = body
        self._minted = minted
        self._bound = bound
        self._open: list[str] = []
        self._ids: set[str] = set()
        self._before: list[Any] = [body.get("system"), body.get("tools")]

    def check(self) -> None:
        messages = self._body["messages"]
        check(isinstance(messages, list) and messages, "at least one message is required", "messages")
        for index, message in enumerate(messages):
            where = f"messages.{index}"
            check_object(message, where, required={"role", "content"})
            check_choice(message["role"], ("user", "assistant"), f"{where}.role")
            role = ("user", "assistant")[index % 2]
            check(
                message["role"] == role,
                'roles must alternate between "user" and "assistant", beginning with "user"',
                where,
            )
            blocks = blocks_of(message)
            check(isinstance(blocks, list) and blocks, "all messages must have non-empty content", where)
            if role == "user":
                self._user(blocks, f"{where}.content")
            else:
                self._assistant(blocks, f"{where}.content")
        check(
            messages[-1]["role"] == "user",
            "This model does not support assistant message prefill.",
            "messages",
        )
        self._turn_begins_with_thinking(messages)

    def _user(self, blocks: Sequence[Any], where: str) -> None:
        answers = True
        for index, block in enumerate(blocks):
            here = f"{where}.{index}"
            check(isinstance(block, dict), "Input should be an object", here)
            if block.get("type") == "tool_result":
                check(answers, "`tool_result` blocks must come before other content", here)
                self._result(block, here)
            else:
                answers = False
                self._part(block, here)
            self._before.append(["user", block])
        check(
            not self._open,
            "`tool_use` ids were found without `tool_result` blocks immediately after:"
            f" {', '.join(self._open)}. Each `tool_use` block must have a corresponding `tool_result`"
            " block in the next message.",
            where,
        )

    def _part(self, block: Mapping[str, Any], where: str) -> None:
        match block.get("type"):
            case "text":
                check_object(block, where, required={"type", "text"}, optional={"cache_control"})
                _check_text(block["text"], where)
            case "image":
                check_object(block, where, required={"type", "source"}, optional={"cache_control"})
                _check_image(block["source"], f"{where}.image.source")
            case other:
                raise Violation(f"Input tag {other!r} does not match any of the expected tags", where)

    def _result(self, block: Mapping[str, Any], where: str) -> None:
        optional = {"is_error", "cache_control"}
        check_object(block, where, required={"type", "tool_use_id", "content"}, optional=optional)
        check_id(block["tool_use_id"], f"{where}.tool_use_id", MAX_CALL_ID)
        check(
            block["tool_use_id"] in self._open,
            f"unexpected `tool_use_id` found in `tool_result` blocks: {block['tool_use_id']}. Each"
            " `tool_result` block must have a corresponding `tool_use` block in the previous message.",
            where,
        )
        self._open.remove(block["tool_use_id"])
        content = block["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        check(isinstance(parts, list) and parts, "Expected content.", where)
        for index, part in enumerate(parts):
            self._part(part, f"{where}.content.{index}")
        texts = all(part["type"] == "text" for part in parts)
        check(texts or not block.get("is_error"), "all content must be type `text` if `is_error` is true")

    def _assistant(self, blocks: Sequence[Any], where: str) -> None:
        for index, block in enumerate(blocks):
            here = f"{where}.{index}"
            check(isinstance(block, dict), "Input should be an object", here)
            match block.get("type"):
                case "text":
                    check_object(block, here, required={"type", "text"})
                    _check_text(block["text"], here)
                case "tool_use":
                    self._call(block, here)
                case "thinking":
                    check_object(block, here, required={"type", "thinking", "signature"})
                    self._thought(block, block["signature"], blocks[index + 1 : index + 2], here)
                case "redacted_thinking":
                    check_object(block, here, required={"type", "data"})
                    self._thought(block, block["data"], blocks[index + 1 : index + 2], here)
                case other:
                    raise Violation(f"Input tag {other!r} does not match any of the expected tags", here)
            self._before.append(["assistant", block])
        last = blocks[-1]["type"]
        check(last not in THINKING, f"The final block in an assistant message cannot be `{last}`.", where)

    def _call(self, block: Mapping[str, Any], where: str) -> None:
        check_object(block, where, required={"type", "id", "name", "input"})
        check_id(block["id"], f"{where}.id", MAX_CALL_ID)
        check(block["id"] not in self._ids, "`tool_use` ids must be unique", where)
        check_name(block["name"], f"{where}.name")
        check(isinstance(block["input"], dict), "Input should be a valid dictionary", f"{where}.input")
        check(
            self._body.get("tools"),
            "Requests which include `tool_use` or `tool_result` blocks must define tools",
            "tools",
        )
        self._ids.add(block["id"])
        self._open.append(block["id"])

    def _thought(self, block: Mapping[str, Any], seal: Any, after: Sequence[Any], where: str) -> None:
        known = self._minted.get(seal)
        config = self._body.get("thinking", {}).get("type")
        check(config != "disabled", "Thinking blocks were sent with thinking disabled.", where)
        check(
            known is not None and known.block == block and known.model == self._body["model"],
            f"Invalid `signature` in `{block['type']}` block",
            where,
        )
        assert known is not None
        following = after[0] if after and isinstance(after[0], dict) else None
        told = following is not None and (following.get("type") in THINKING or shape(following))
        expected = known.follower
        check(
            told is True or told == expected,
            "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified.",
            where,
        )
        check(
            not self._bound or fingerprint(self._before) == known.prefix,
            f"Invalid `signature` in `{block['type']}` block. The block is bound to a different"
            " conversation.",
            where,
        )

    def _turn_begins_with_thinking(self, messages: Sequence[Mapping[str, Any]]) -> None:
        if self._body.get("thinking", {}).get("type") != "enabled" or not _has_results(messages[-1]):
            return
        begun = [
            index
            for index, message in enumerate(messages)
            if message["role"] == "user" and not _has_results(message)
        ]
        first = messages[begun[-1] + 1]["content"][0]["type"]
        check(
            first in THINKING,
            f"Expected `thinking` or `redacted_thinking`, but found `{first}`. When `thinking` is enabled, a"
            " final `assistant` message must start with a thinking block.",
            f"messages.{begun[-1] + 1}.content.0.type",
        )


def _has_results(message: Mapping[str, Any]) -> bool:
    content = message["content"]
    return isinstance(content, list) and any(block["type"] == "tool_result" for block in content)


def _check_image(source: Any, where: str) -> None:
    check(isinstance(source, dict), "Input should be an object", where)
    if source.get("type") == "url":
        check_object(source, where, required={"type", "url"})
        check(source["url"].startswith("https://"), "Only HTTPS URLs are supported.", where)
        said = "Unable to download the file. Please verify the URL and try again."
        check(is_reachable(source["url"]), said)
        return
    check_object(source, where, required={"type", "media_type", "data"})
    check_choice(source["type"], ("base64",), f"{where}.type")
    check_choice(source["media_type"], MEDIA, f"{where}.media_type")
    try:
        content = base64.b64decode(source["data"], validate=True)
    except binascii.Error:
        content = b""
    check(content, "image cannot be empty and must be valid base64", f"{where}.data")
    check(is_readable(content), "Could not process image")
    check(
        kind_of(content) in (None, source["media_type"]),
        f"Image does not match the provided media type {source['media_type']}",
        f"{where}.data",
    )
    check(len(content) <= MAX_IMAGE, "image exceeds 10 MB maximum", f"{where}.data")
