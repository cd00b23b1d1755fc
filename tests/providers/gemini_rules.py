"""What the Gemini protocol accepts in a request."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.providers.rules import (
    check,
    check_choice,
    check_newest_draft,
    check_text,
    is_reachable,
    is_readable,
    kind_of,
)

FOREIGN_SIGNATURE = "skip_thought_signature_validator"
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}")
IMAGES = ("image/png", "image/jpeg", "image/webp", "image/heic", "image/heif")
DATA = ("text", "inlineData", "fileData", "functionCall", "functionResponse")
LEVELS = ("MINIMAL", "LOW", "MEDIUM", "HIGH", "XHIGH")
FIELDS = ("systemInstruction", "tools", "toolConfig", "generationConfig", "serviceTier", "safetySettings")
CONFIG = (
    *("maxOutputTokens", "temperature", "topP", "thinkingConfig", "responseMimeType"),
    *("responseJsonSchema", "responseSchema"),
)
SCHEMA = {
    *("type", "format", "title", "description", "nullable", "enum", "items", "minItems", "maxItems"),
    *("properties", "required", "minProperties", "maxProperties", "minLength", "maxLength", "pattern"),
    *("minimum", "maximum", "anyOf", "propertyOrdering", "example"),
}
FORMATS = {"STRING": ("enum", "date-time"), "NUMBER": ("float", "double"), "INTEGER": ("int32", "int64")}


@dataclass
class ModelRules:
    """What the models of a fake provider take.

    Args:
        json_schema: JSON Schema for functions and answers.
        schema_with_tools: an output schema beside functions.
        signed_calls: the first call of every step must be signed.
        call_ids: ids of calls.
        levels: thinking is set by levels; else by budgets.
        fetches_images: images from the web.
    """

    json_schema: bool = True
    schema_with_tools: bool = True
    signed_calls: bool = True
    call_ids: bool = True
    levels: bool = True
    fetches_images: bool = True


@dataclass
class Signed:
    """The signatures a provider has given out: for which model, and on what."""

    parts: dict[str, tuple[str, str]] = field(default_factory=dict)
    calls: dict[str, str] = field(default_factory=dict)

    def keep(self, signature: str, model: str, part: dict[str, Any]) -> None:
        self.parts[signature] = (model, _payload(part))
        call_id = part.get("functionCall", {}).get("id")
        if call_id:
            self.calls[call_id] = signature


def check_request(body: Any, model: str, rules: ModelRules, signed: Signed) -> None:
    _check_known(body, "", ("contents", *FIELDS))
    _check_contents(body.get("contents"), model, rules, signed)
    if "systemInstruction" in body:
        _check_known(body["systemInstruction"], "system_instruction", ("parts", "role"))
        for part in body["systemInstruction"]["parts"]:
            check_text(part.get("text"), "system_instruction.parts")
    _check_tools(body, rules)
    _check_config(body, rules)
    check_choice(body.get("serviceTier", "flex"), ("flex", "standard", "priority"), "service_tier")


def _check_known(value: Any, where: str, known: Collection[str]) -> None:
    check(isinstance(value, dict), f"Invalid value at '{where}': expected an object.", where)
    for name in value:
        place = f" at '{where}'" if where else ""
        said = f'Invalid JSON payload received. Unknown name "{name}"{place}: Cannot find field.'
        check(name in known, said, where or name)


# ---- contents ----------------------------------------------------------------------------------


def _check_contents(contents: Any, model: str, rules: ModelRules, signed: Signed) -> None:
    check(isinstance(contents, list) and contents, "* contents: contents is not specified", "contents")
    check(contents[0].get("role") == "user", "The conversation must begin with a user turn.", "contents[0]")
    check(
        contents[-1].get("role") == "user",
        "Please ensure that the conversation ends with a user turn or a function response.",
        "contents",
    )
    owed: list[dict[str, Any]] = []
    previous = None
    for index, content in enumerate(contents):
        where = f"contents[{index}]"
        _check_known(content, where, ("role", "parts"))
        role, parts = content.get("role"), content.get("parts")
        check(role in ("user", "model"), "Please use a valid role: user, model.", where)
        check(
            role != previous, "Please ensure that multiturn requests alternate between user and model.", where
        )
        check(isinstance(parts, list) and parts, f"* {where}.parts: must not be empty.", where)
        previous = role
        for number, part in enumerate(parts):
            _check_part(part, f"{where}.parts[{number}]", role, rules)
        _check_responses(parts, owed, where)
        owed = [part["functionCall"] for part in parts if "functionCall" in part]
        _check_signatures(parts, model, rules, signed, where)
    check(not owed, "Please ensure that function call turn is followed by function responses.", "contents")


def _check_part(part: Any, where: str, role: str, rules: ModelRules) -> None:
    _check_known(part, where, (*DATA, "thought", "thoughtSignature"))
    data = [name for name in DATA if name in part]
    check(
        len(data) == 1, f"* {where}.data: required oneof field 'data' must have one initialized field", where
    )
    value = part[data[0]]
    of_model = data[0] == "functionCall" or "thoughtSignature" in part or "thought" in part
    check(role == "model" or not of_model, f"* {where}: only the model calls and signs.", where)
    check(role == "user" or data[0] in ("text", "functionCall"), f"* {where}: not of a model.", where)
    match data[0]:
        case "text":
            check(isinstance(value, str), f"Invalid value at '{where}.text' (TYPE_STRING)", where)
            check(value or "thoughtSignature" in part, f"* {where}.text: must not be empty.", where)
        case "inlineData":
            _check_inline(value, where)
        case "fileData":
            _check_known(value, where, ("fileUri", "mimeType"))
            fetched = rules.fetches_images and re.match(r"https?://[^/]+", str(value.get("fileUri")))
            check(fetched, "Invalid or unsupported file uri: " + str(value.get("fileUri")), where)
            check(is_reachable(value["fileUri"]), "Cannot fetch content from the provided URL.", where)
            check(value.get("mimeType", IMAGES[0]) in IMAGES, "Unsupported MIME type.", where)
        case "functionCall":
            _check_named(value, where, ("name", "args", "id"), rules)
            check(isinstance(value.get("args"), dict), f"Invalid value at '{where}.args': no Struct.", where)
        case "functionResponse":
            _check_named(value, where, ("name", "response", "id"), rules)
            response = value.get("response")
            check(isinstance(response, dict) and response, f"* {where}.response: must be an object.", where)


def _check_named(value: Any, where: str, known: Collection[str], rules: ModelRules) -> None:
    _check_known(value, where, known if rules.call_ids else [name for name in known if name != "id"])
    name = value.get("name")
    check(isinstance(name, str) and NAME.fullmatch(name), f"* {where}.name: Invalid function name.", where)
    check(value.get("id", "x"), f"* {where}.id: must not be empty.", where)


def _check_inline(value: Any, where: str) -> None:
    _check_known(value, where, ("mimeType", "data"))
    check(value.get("mimeType") in IMAGES, f"Unsupported MIME type: {value.get('mimeType')}", where)
    try:
        content = base64.b64decode(value.get("data", ""), validate=True)
    except binascii.Error:
        content = b""
    check(content, f"Invalid value at '{where}.inline_data.data' (TYPE_BYTES), Base64 decoding failed", where)
    readable = is_readable(content) and kind_of(content) in (None, value["mimeType"])
    check(readable, "Unable to process input image. Please retry or report in our troubleshooting guide.")


def _check_responses(parts: list[dict[str, Any]], owed: list[dict[str, Any]], where: str) -> None:
    given = [part["functionResponse"] for part in parts if "functionResponse" in part]
    check(
        len(given) == len(owed),
        "Please ensure that the number of function response parts is equal to the number of function call"
        " parts of the function call turn.",
        where,
    )
    check(
        all("functionResponse" in part for part in parts[: len(given)]),
        "Please ensure that function response parts come first.",
        where,
    )
    for call, response in zip(owed, given, strict=True):
        same = call["name"] == response["name"] and call.get("id") == response.get("id")
        check(same, f"Function response {response['name']} does not match call {call['name']}.", where)
    ids = [call["id"] for call in owed if "id" in call]
    check(len(ids) == len(set(ids)), "Duplicate function call ids.", where)


def _check_signatures(
    parts: list[dict[str, Any]], model: str, rules: ModelRules, signed: Signed, where: str
) -> None:
    calls = [part for part in parts if "functionCall" in part]
    if rules.signed_calls and calls:
        name = calls[0]["functionCall"]["name"]
        check(
            calls[0].get("thoughtSignature"),
            "Function call is missing a thought_signature in functionCall parts. This is required for tools"
            f" to work correctly. Additional data, function call `default_api:{name}`, position 1.",
            where,
        )
    for part in parts:
        signature = part.get("thoughtSignature")
        mine = signed.calls.get(part.get("functionCall", {}).get("id", ""))
        if mine is not None and signed.parts.get(mine, ("", ""))[0] == model:
            check(signature == mine, "A signature of this model was lost.", where)
        if signature is None or (signature == FOREIGN_SIGNATURE and "functionCall" in part):
            continue
        known = signed.parts.get(signature)
        right = known is not None and known == (model, _payload(part))
        check(right, "Unable to submit request because Thought signature is not valid.", where)


def _payload(part: dict[str, Any]) -> str:
    """What a signature was given for."""
    call = part.get("functionCall")
    said = {"name": call["name"], "args": call["args"]} if call else {"text": part.get("text", "")}
    return json.dumps(said, sort_keys=True)


# ---- settings ----------------------------------------------------------------------------------


def _check_tools(body: dict[str, Any], rules: ModelRules) -> None:
    if "toolConfig" in body:
        _check_known(body["toolConfig"], "tool_config", ("functionCallingConfig",))
        mode = body["toolConfig"]["functionCallingConfig"].get("mode")
        check_choice(mode, ("AUTO", "ANY", "NONE", "VALIDATED"), "tool_config.function_calling_config.mode")
        check("tools" in body, "Function calling config is set without function_declarations.", "tool_config")
    if "tools" not in body:
        return
    names: set[str] = set()
    check(isinstance(body["tools"], list) and len(body["tools"]) == 1, "* tools: one is expected.", "tools")
    _check_known(body["tools"][0], "tools[0]", ("functionDeclarations",))
    declared = body["tools"][0].get("functionDeclarations")
    check(
        isinstance(declared, list) and declared, "* tools[0].tool_type: required one_of 'tool_type'", "tools"
    )
    for index, function in enumerate(declared):
        where = f"tools[0].function_declarations[{index}]"
        known = ["name", "description", "parametersJsonSchema" if rules.json_schema else "parameters"]
        _check_known(function, where, known)
        name = function.get("name")
        check(
            isinstance(name, str) and NAME.fullmatch(name), f"* {where}.name: Invalid function name.", where
        )
        check(name not in names, f"Duplicate function declaration found: {name}", where)
        names.add(name)
        if "description" in function:
            check_text(function["description"], f"{where}.description")
        if rules.json_schema:
            _check_json_schema(function.get("parametersJsonSchema"), f"{where}.parameters_json_schema")
        elif "parameters" in function:
            check(function["parameters"].get("type") == "OBJECT", f"{where}: an object is expected.", where)
            check(function["parameters"].get("properties"), _empty(f"{where}.parameters"), where)
            check_schema(function["parameters"], f"{where}.parameters")


def _check_config(body: dict[str, Any], rules: ModelRules) -> None:
    config = body.get("generationConfig", {})
    _check_known(config, "generation_config", CONFIG)
    limit = config.get("maxOutputTokens", 1)
    check(isinstance(limit, int) and limit > 0, "max_output_tokens must be positive", "generation_config")
    thinking = config.get("thinkingConfig", {})
    where = "generation_config.thinking_config"
    _check_known(thinking, where, ("includeThoughts", "thinkingLevel", "thinkingBudget"))
    both = "thinkingLevel" in thinking and "thinkingBudget" in thinking
    check(not both, "You can only set only one of thinking budget and thinking level.", where)
    if "thinkingLevel" in thinking:
        check(rules.levels, "Thinking level is not supported for this model.", where)
        check_choice(thinking["thinkingLevel"], LEVELS, f"{where}.thinking_level")
    check(isinstance(thinking.get("thinkingBudget", 0), int), "The thinking budget is invalid.", where)
    schemas = [name for name in ("responseJsonSchema", "responseSchema") if name in config]
    if "responseMimeType" not in config:
        check(not schemas, "A response schema needs response_mime_type: 'application/json'.", where)
        return
    check(config["responseMimeType"] == "application/json", "Unsupported response mime type.", where)
    check(len(schemas) == 1, "One response schema is expected.", where)
    check(
        rules.schema_with_tools or "tools" not in body,
        "Function calling with a response mime type: 'application/json' is unsupported",
        "generation_config",
    )
    _check_known(config, "generation_config", [name for name in CONFIG if name in _of(rules)])
    if rules.json_schema:
        _check_json_schema(config["responseJsonSchema"], "generation_config.response_json_schema")
    else:
        check_schema(config["responseSchema"], "generation_config.response_schema")


def _of(rules: ModelRules) -> set[str]:
    return {*CONFIG} - {"responseSchema" if rules.json_schema else "responseJsonSchema"}


def _check_json_schema(schema: Any, where: str) -> None:
    check(isinstance(schema, dict), f"* {where}: a schema is expected.", where)
    check(schema.get("type") == "object", f"* {where}: schema must describe an object.", where)
    check_newest_draft(schema, f"* {where}", where)


def _empty(where: str) -> str:
    return f"* GenerateContentRequest.{where}.properties: should be non-empty for OBJECT type"


def check_schema(schema: Any, where: str) -> None:
    """The subset of OpenAPI's schemas: what is unknown, contradictory or empty is refused."""
    _check_known(schema, where, SCHEMA)
    if "anyOf" in schema:
        check(len(schema) == 1, f"* {where}: when using any_of, it must be the only field set.", where)
        check(isinstance(schema["anyOf"], list) and schema["anyOf"], f"* {where}.any_of: is empty.", where)
        for index, branch in enumerate(schema["anyOf"]):
            check_schema(branch, f"{where}.any_of[{index}]")
        return
    kind = schema.get("type")
    kinds = ("STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT")
    check(kind in kinds, f"* {where}.type: must be specified", where)
    if "format" in schema:
        check(schema["format"] in FORMATS.get(kind, ()), f"* {where}.format: unsupported for {kind}", where)
    if "enum" in schema:
        check(kind == "STRING", f"* {where}.enum: only allowed for STRING type", where)
        texts = [isinstance(value, str) and value for value in schema["enum"]]
        check(texts and all(texts), f"* {where}.enum[0]: cannot be empty", where)
    check(("items" in schema) == (kind == "ARRAY"), f"* {where}.items: missing field.", where)
    if "items" in schema:
        check_schema(schema["items"], f"{where}.items")
    if "properties" in schema:
        check(kind == "OBJECT" and schema["properties"], _empty(where), where)
        for name, one in schema["properties"].items():
            check_schema(one, f"{where}.properties[{name}]")
    for name in schema.get("required", ()):
        check(name in schema.get("properties", {}), f"* {where}.required: property is not defined", where)


def schema_parts(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A schema of the subset and all that is in it."""
    yield schema
    inner = [*schema.get("properties", {}).values(), *schema.get("anyOf", ())]
    for part in [*inner, *([schema["items"]] if "items" in schema else [])]:
        yield from schema_parts(part)
