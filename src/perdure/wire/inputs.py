"""Input events: what clients post to a session."""

from __future__ import annotations

import binascii
import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Discriminator, Field, Tag, model_validator
from pydantic_core import to_json

from perdure.wire.shapes import PlainUnion, Request, refusal

MAX_EVENTS = 64
MAX_MESSAGE_TEXT = 1 << 20
MAX_RESULT_TEXT = 16 << 20
MAX_IMAGES = 20
MAX_SIGN_IN_FIELDS = 6
MAX_SIGN_IN_VALUE = 16_384
MAX_SIGN_IN_BYTES = 120 << 10

_DATA_URL = re.compile(r"data:image/[A-Za-z0-9.+-]+(?:;[A-Za-z0-9=.+-]+)*?;base64,", re.IGNORECASE)

Id = Annotated[str, Field(min_length=1, max_length=256)]
Decision = Literal["approve", "deny", "cancel"]


class InputTextPart(Request):
    type: Literal["input_text"]
    text: str


class InputImagePart(Request):
    """An image by http(s) URL or as a base64 data URL."""

    type: Literal["input_image"]
    image_url: str

    @model_validator(mode="after")
    def _check_url(self) -> InputImagePart:
        fault = _image_url_fault(self.image_url)
        if fault:
            raise refusal(f"Invalid '{{param}}': {fault}", "image_url")
        return self


InputPart = Annotated[InputTextPart | InputImagePart, Field(discriminator="type")]


class UserMessageInput(Request):
    """One user message."""

    type: Literal["message"] = "message"
    role: Literal["user"]
    content: Annotated[list[InputPart], Field(fail_fast=True)]

    @model_validator(mode="after")
    def _check_content(self) -> UserMessageInput:
        if not any(part.type == "input_image" or part.text for part in self.content):
            raise refusal(
                "Invalid '{param}': a message needs at least one non-empty content part.", "content"
            )
        for index, part in enumerate(self.content):
            if part.type == "input_text":
                check_text(part.text, MAX_MESSAGE_TEXT, "content", index, "text")
        _check_image_count(self.content, "content")
        return self


class MessageInput(Request):
    """Messages: they start a turn on an idle session and steer the turn of a busy one."""

    type: Literal["agent.session.input.message"]
    input: Annotated[list[UserMessageInput], Field(min_length=1, fail_fast=True)]


class CancelInput(Request):
    """Cancels the session's active turn."""

    type: Literal["agent.session.input.cancel"]


def _output_kind(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else None


ResultOutput = Annotated[
    Annotated[str | None, Tag("string")] | Annotated[list[InputPart], Field(fail_fast=True), Tag("array")],
    Discriminator(
        _output_kind,
        custom_error_type="refused",
        custom_error_message="{text}",
        custom_error_context={
            "text": "Invalid type for '{param}': expected a string or an array of content parts, but got "
            "{got} instead. Serialise other results to a JSON string.",
            "code": "invalid_request_error",
        },
    ),
]


class ToolResultInput(Request):
    """The result of a function call."""

    type: Literal["agent.session.input.tool_result"]
    turn_id: Id
    call_id: Id
    success: bool
    output: ResultOutput = None
    error: str | None = None

    @model_validator(mode="after")
    def _check_size(self) -> ToolResultInput:
        if isinstance(self.output, str):
            check_text(self.output, MAX_RESULT_TEXT, "output")
        elif self.output is not None:
            texts = [part.text for part in self.output if part.type == "input_text"]
            check_text("".join(texts), MAX_RESULT_TEXT, "output")
            _check_image_count(self.output, "output")
        if self.error is not None:
            check_text(self.error, MAX_RESULT_TEXT, "error")
        return self


class McpDecision(Request):
    type: Literal["mcp_tool_call"]
    decision: Decision


class McpApprovalResultInput(Request):
    """The answer to an MCP approval request."""

    type: Literal["agent.session.input.mcp_approval_request_result"]
    request_id: Id
    response: McpDecision


class SignInValue(Request):
    field_id: Id
    value: Annotated[str, Field(max_length=MAX_SIGN_IN_VALUE, repr=False)]


class SignInSubmit(Request):
    type: Literal["browser_authentication"]
    action: Literal["submit"]
    fields: Annotated[list[SignInValue], Field(max_length=MAX_SIGN_IN_FIELDS)]
    selected_option: str | None = None

    @model_validator(mode="after")
    def _check_fields(self) -> SignInSubmit:
        values: dict[str, str] = {}
        for index, field in enumerate(self.fields):
            if field.field_id in values:
                raise refusal("Invalid '{param}': the field is given twice.", "fields", index, "field_id")
            values[field.field_id] = field.value
        if len(to_json({"fields": values, "selected_option": self.selected_option})) > MAX_SIGN_IN_BYTES:
            raise refusal(
                f"Invalid '{{param}}': too large. The values and the option must fit {MAX_SIGN_IN_BYTES:,} "
                "bytes of JSON.",
                "fields",
            )
        return self


class SignInCancel(Request):
    type: Literal["browser_authentication"]
    action: Literal["cancel"]


class OriginDecision(Request):
    type: Literal["browser_origin_access"]
    decision: Decision


ComputerResponse = Annotated[
    Annotated[SignInSubmit | SignInCancel, Field(discriminator="action")] | OriginDecision,
    Field(discriminator="type"),
    PlainUnion(),
]


class ComputerApprovalResultInput(Request):
    """The answer to a browser request."""

    type: Literal["agent.session.input.computer_use_approval_request_result"]
    request_id: Id
    response: ComputerResponse


InputEvent = Annotated[
    MessageInput | CancelInput | ToolResultInput | McpApprovalResultInput | ComputerApprovalResultInput,
    Field(discriminator="type"),
]


class EventBatch(Request):
    """Up to 64 input events, admitted in order and all or none; an empty list does nothing."""

    events: Annotated[list[InputEvent], Field(max_length=MAX_EVENTS)]


def check_text(text: str, max_bytes: int, *path: str | int) -> None:
    """Refuse a text of more than `max_bytes` bytes of UTF-8."""
    # A character has at most 4 bytes, so most texts need no encoding to be measured.
    if len(text) * 4 <= max_bytes:
        return
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > max_bytes:
        raise refusal(
            f"Invalid '{{param}}': text too large. Expected at most {max_bytes:,} bytes of UTF-8, but got "
            f"{size:,} instead.",
            *path,
        )


def _check_image_count(parts: Sequence[InputTextPart | InputImagePart], name: str) -> None:
    count = sum(part.type == "input_image" for part in parts)
    if count > MAX_IMAGES:
        raise refusal(
            f"Invalid '{{param}}': too many images. Expected at most {MAX_IMAGES}, but got {count} instead.",
            name,
        )


def _image_url_fault(url: str) -> str | None:
    if url[:5].lower() == "data:":
        head = _DATA_URL.match(url)
        if head is None:
            return "a data URL must look like 'data:image/png;base64,…'."
        try:
            data = binascii.a2b_base64(url[head.end() :], strict_mode=True)
        except ValueError:
            return "the data after 'base64,' is not standard base64."
        return None if data else "the data URL holds no data."
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        host = None
    if not host or parts.scheme.lower() not in ("http", "https") or re.search(r"[\s\x00-\x1f]", url):
        return "expected an http(s) URL or a base64 data URL of an image."
    return None
