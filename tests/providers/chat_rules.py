"""What the Chat Completions protocol accepts in a request."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Literal

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
    *("model", "messages", "stream", "stream_options", "tools", "tool_choice", "response_format"),
    *("reasoning_effort", "verbosity", "service_tier", "max_tokens", "max_completion_tokens"),
    *("parallel_tool_calls", "temperature", "top_p", "n", "stop", "user", "metadata", "store"),
}
TIERS = ("auto", "default", "flex", "scale", "priority", "fast")
MAX_CALL_ID = 40

ReasoningRule = Literal["optional", "required", "forbidden"]


@dataclass
class Reasoned:
    """The reasoning a provider has produced, and what it wants to see of it again.

    `rule` "required": once there is any, every message of the assistant must have the field;
    "forbidden": none may. Texts and details it did not produce are refused under every rule.
    `single_calls`: no message may have more than one call.
    """

    rule: ReasoningRule
    spelling: str
    single_calls: bool = False
    texts: set[str] = field(default_factory=set)
    details: list[Any] = field(default_factory=list)


def check_request(body: Any, reasoned: Reasoned) -> None:
    check_object(body, "body", required={"model", "messages", "stream"}, optional=FIELDS)
    check_text(body["model"], "model")
    check(body["stream"] is True, "This server only streams.", "stream")
    if "stream_options" in body:
        check_object(body["stream_options"], "stream_options", required={"include_usage"})
        check(
            body["stream_options"]["include_usage"] is True, "Expected true.", "stream_options.include_usage"
        )
    check_choice(body.get("reasoning_effort", "low"), EFFORTS, "reasoning_effort")
    check_choice(body.get("verbosity", "low"), VERBOSITIES, "verbosity")
    check_choice(body.get("service_tier", "auto"), TIERS, "service_tier")
    if "response_format" in body:
        wanted = body["response_format"]
        check_object(wanted, "response_format", required={"type", "json_schema"})
        check_choice(wanted["type"], ("json_schema",), "response_format.type")
        where = "response_format.json_schema"
        check_object(
            wanted["json_schema"], where, required={"name", "schema"}, optional={"strict", "description"}
        )
        check_output_schema(wanted["json_schema"], where)
    _check_tools(body)
    MessageCheck(reasoned).check(body["messages"])


def _check_tools(body: dict[str, Any]) -> None:
    check_single_calls_wish(body)
    if "tools" not in body:
        return
    check(isinstance(body["tools"], list) and body["tools"], "Invalid 'tools': empty array.", "tools")
    names: set[str] = set()
    for index, tool in enumerate(body["tools"]):
        where = f"tools[{index}]"
        check_object(tool, where, required={"type", "function"})
        check_choice(tool["type"], ("function",), f"{where}.type")
        optional = {"description", "parameters", "strict"}
        check_object(tool["function"], f"{where}.function", required={"name"}, optional=optional)
        check_function(tool["function"], f"{where}.function", names)


class MessageCheck:
    """Reads messages in order and remembers which calls of the last assistant message are open."""

    def __init__(self, reasoned: Reasoned) -> None:
        self._reasoned = reasoned
        self._open: list[str] = []
        self._ids: set[str] = set()

    def check(self, messages: Any) -> None:
        check(isinstance(messages, list) and messages, "Invalid 'messages': empty array.", "messages")
        for index, message in enumerate(messages):
            where = f"messages[{index}]"
            check(isinstance(message, dict), f"Invalid type for '{where}': expected an object.", where)
            role = message.get("role")
            if role != "tool":
                self._nothing_is_open(where)
            match role:
                case "system" | "developer":
                    check(index == 0, "A system message must come first.", where)
                    check_object(message, where, required={"role", "content"})
                    check_text(message["content"], f"{where}.content")
                case "user":
                    check_object(message, where, required={"role", "content"}, optional={"name"})
                    self._content(message["content"], f"{where}.content", {"text", "image_url"})
                case "assistant":
                    self._assistant(message, where)
                case "tool":
                    self._result(message, where)
                case _:
                    raise Violation(f"Invalid value: {role!r}.", f"{where}.role", "invalid_value")
        self._nothing_is_open("messages")
        check(messages[-1]["role"] != "assistant", "The last message is the assistant's own.", "messages")

    def _nothing_is_open(self, where: str) -> None:
        check(
            not self._open,
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each"
            f" 'tool_call_id'. The following tool_call_ids did not have response messages: {self._open}",
            where,
        )

    def _content(self, content: Any, where: str, kinds: Collection[str]) -> None:
        if isinstance(content, str):
            check_text(content, where)
            return
        check(isinstance(content, list) and content, f"Invalid '{where}': expected content.", where)
        for index, part in enumerate(content):
            here = f"{where}[{index}]"
            check(isinstance(part, dict), f"Invalid type for '{here}': expected an object.", here)
            check_choice(part.get("type"), tuple(kinds), f"{here}.type")
            if part["type"] == "text":
                check_object(part, here, required={"type", "text"})
                check_text(part["text"], f"{here}.text")
            else:
                check_object(part, here, required={"type", "image_url"})
                check_object(part["image_url"], f"{here}.image_url", required={"url"}, optional={"detail"})
                check_image(part["image_url"]["url"], f"{here}.image_url.url")

    def _assistant(self, message: dict[str, Any], where: str) -> None:
        optional = {"tool_calls", "refusal", self._reasoned.spelling, "reasoning_details"}
        check_object(message, where, required={"role", "content"}, optional=optional)
        self._reasoning(message, where)
        if message["content"] is not None or "tool_calls" not in message:
            self._content(message["content"], f"{where}.content", {"text"})
        if "tool_calls" not in message:
            return
        calls = message["tool_calls"]
        check(isinstance(calls, list) and calls, f"Invalid '{where}.tool_calls': empty array.", where)
        check(
            not self._reasoned.single_calls or len(calls) == 1,
            "This model only supports single tool-calls at once!",
        )
        for index, call in enumerate(calls):
            here = f"{where}.tool_calls[{index}]"
            check_object(call, here, required={"id", "type", "function"})
            check_choice(call["type"], ("function",), f"{here}.type")
            check_id(call["id"], f"{here}.id", MAX_CALL_ID)
            check(call["id"] not in self._ids, f"Duplicate tool call id {call['id']}.", f"{here}.id")
            check_object(call["function"], f"{here}.function", required={"name", "arguments"})
            check_name(call["function"]["name"], f"{here}.function.name")
            check_arguments(call["function"]["arguments"], f"{here}.function.arguments")
            self._ids.add(call["id"])
            self._open.append(call["id"])

    def _result(self, message: dict[str, Any], where: str) -> None:
        check_object(message, where, required={"role", "tool_call_id", "content"})
        check(
            message["tool_call_id"] in self._open,
            "Messages with role 'tool' must be a response to a preceding message with 'tool_calls'.",
            where,
        )
        self._content(message["content"], f"{where}.content", {"text"})
        self._open.remove(message["tool_call_id"])

    def _reasoning(self, message: dict[str, Any], where: str) -> None:
        name = self._reasoned.spelling
        given = {key for key in (name, "reasoning_details") if key in message}
        check(
            self._reasoned.rule != "forbidden" or not given,
            f"The '{name}' of earlier messages must not be sent.",
            f"{where}.{name}",
        )
        check(
            self._reasoned.rule != "required" or not any(self._reasoned.texts) or name in given,
            f"thinking is enabled but {name} is missing in assistant message.",
            f"{where}.{name}",
        )
        text = message.get(name, "")
        check(text == "" or text in self._reasoned.texts, "Unknown reasoning.", f"{where}.{name}")
        for detail in message.get("reasoning_details", ()):
            check(detail in self._reasoned.details, "Unknown reasoning.", f"{where}.reasoning_details")
