"""Checks that both protocols share; a broken rule is a `Violation`."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jsonschema_rs

NEWEST_DRAFT = "https://json-schema.org/draft/2020-12/schema"
MAGIC = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
}
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
IMAGE_DATA = re.compile(r"data:(image/(?:png|jpeg|gif|webp));base64,(.*)", re.DOTALL)
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
VERBOSITIES = ("low", "medium", "high")


class Violation(Exception):
    """A request the provider refuses with HTTP 400."""

    def __init__(self, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code


def check(holds: object, message: str, param: str | None = None, code: str | None = None) -> None:
    if not holds:
        raise Violation(message, param, code)


def check_object(
    value: Any, where: str, *, required: Collection[str], optional: Collection[str] = ()
) -> None:
    """The value is an object with all of `required` and nothing beyond `optional`."""
    check(isinstance(value, dict), f"Invalid type for '{where}': expected an object.", where)
    for name in required:
        check(name in value, f"Missing required parameter: '{where}.{name}'.", f"{where}.{name}")
    for name in value:
        check(
            name in required or name in optional, f"Unknown parameter: '{where}.{name}'.", f"{where}.{name}"
        )


def check_choice(value: Any, choices: Sequence[str], where: str) -> None:
    check(
        value in choices,
        f"Invalid value: {value!r}. Supported values are: {choices}.",
        where,
        "invalid_value",
    )


def check_text(value: Any, where: str) -> None:
    check(isinstance(value, str), f"Invalid type for '{where}': expected a string.", where)
    check(value != "", f"Invalid '{where}': empty string.", where, "empty_string")


def check_name(value: Any, where: str) -> None:
    check(
        isinstance(value, str) and NAME.fullmatch(value),
        f"Invalid '{where}': string does not match pattern. Expected '^[a-zA-Z0-9_-]+$'.",
        where,
        "invalid_value",
    )


def check_id(value: Any, where: str, longest: int) -> None:
    check(isinstance(value, str) and value, f"Invalid '{where}': empty string.", where, "empty_string")
    check(
        len(value) <= longest,
        f"Invalid '{where}': string too long. Expected a string with maximum length {longest}.",
        where,
        "string_above_max_length",
    )
    check(re.fullmatch(r"[A-Za-z0-9_-]+", value), f"Invalid '{where}': unexpected characters.", where)


def check_image(url: Any, where: str) -> None:
    check(isinstance(url, str), f"Invalid type for '{where}': expected a string.", where)
    if re.match(r"https?://[^/]+", url):
        check(
            is_reachable(url),
            f"Error while downloading {url}. Upstream status code: 404.",
            where,
            "invalid_value",
        )
        return
    found = IMAGE_DATA.fullmatch(url)
    check(
        found, f"Invalid '{where}': expected a URL or a base64 data URL of an image.", where, "invalid_image"
    )
    assert found is not None
    try:
        content = base64.b64decode(found[2], validate=True)
    except binascii.Error:
        content = b""
    check(content, f"Invalid '{where}': the image is no base64.", where, "invalid_base64_image")
    check(
        is_readable(content) and kind_of(content) in (None, found[1]),
        "The image data you provided does not represent a valid image. Please check your input.",
        where,
        "invalid_image",
    )


def is_reachable(url: str) -> bool:
    """Whether a provider can fetch an image: not from hosts called `unreachable`."""
    return "//unreachable" not in url


def is_readable(content: bytes) -> bool:
    """Whether a provider can decode an image: not one that says it is broken."""
    return b"BROKEN" not in content


def kind_of(content: bytes) -> str | None:
    """The media type of an image by its first bytes, where they tell."""
    return next((kind for magic, kind in MAGIC.items() if content.startswith(magic)), None)


def check_arguments(value: Any, where: str) -> None:
    check(isinstance(value, str), f"Invalid type for '{where}': expected a string.", where)
    try:
        parsed = json.loads(value)
    except ValueError:
        parsed = None
    check(isinstance(parsed, dict), f"Invalid '{where}': expected a JSON object.", where)


def check_function(function: Mapping[str, Any], where: str, names: set[str]) -> None:
    """Name, description and parameters of an offered function."""
    check_name(function["name"], f"{where}.name")
    check(function["name"] not in names, f"Duplicate function name: {function['name']}.", f"{where}.name")
    names.add(function["name"])
    if "description" in function:
        check_text(function["description"], f"{where}.description")
    parameters = function.get("parameters")
    check(
        isinstance(parameters, dict),
        f"Invalid schema for function {function['name']!r}.",
        f"{where}.parameters",
    )
    assert parameters is not None
    check_schema(parameters, f"{where}.parameters", f"function {function['name']!r}")
    if function.get("strict"):
        check_closed(parameters, f"{where}.parameters")


def check_schema(schema: Mapping[str, Any], where: str, owner: str) -> None:
    said = f"Invalid schema for {owner}"
    code = "invalid_function_parameters"
    check(
        schema.get("type") == "object",
        f"{said}: schema must be a JSON Schema of 'type: \"object\"'.",
        where,
        code,
    )
    check(
        isinstance(schema.get("properties"), dict), f"{said}: object schema missing properties.", where, code
    )
    unions = sorted({"oneOf", "anyOf", "allOf", "enum", "not"} & schema.keys())
    check(not unions, f"{said}: schema must not have {unions} at the top level.", where, code)
    check_newest_draft(schema, said, where)
    _check_arrays(schema, said, where)


def check_newest_draft(schema: Mapping[str, Any], said: str, where: str) -> None:
    valid = jsonschema_rs.meta.is_valid({**schema, "$schema": NEWEST_DRAFT})
    check(valid, f"{said}: it is no JSON Schema of draft 2020-12.", where, "invalid_function_parameters")


def _check_arrays(schema: Any, said: str, where: str) -> None:
    """Arrays say what is in them."""
    if isinstance(schema, list):
        for part in schema:
            _check_arrays(part, said, where)
    if not isinstance(schema, dict):
        return
    kinds = schema.get("type")
    if "array" in (kinds if isinstance(kinds, list) else [kinds]):
        check(
            isinstance(schema.get("items"), dict) or schema.get("items") is False,
            f"{said}: array schema missing items.",
            where,
            "invalid_function_parameters",
        )
    for name in ("properties", "$defs", "definitions"):
        for part in schema.get(name, {}).values():
            _check_arrays(part, said, where)
    for name in ("items", "prefixItems", "anyOf", "oneOf", "allOf", "additionalProperties", "not"):
        _check_arrays(schema.get(name), said, where)


def check_closed(schema: Any, where: str) -> None:
    """Strict mode: every object is closed, all its properties are required, everything has a type."""
    if isinstance(schema, list):
        for index, part in enumerate(schema):
            check_closed(part, f"{where}[{index}]")
        return
    if not isinstance(schema, dict):
        return
    banned = sorted(
        {"allOf", "oneOf", "not", "if", "then", "else", "default", "patternProperties"} & schema.keys()
    )
    check(not banned, f"Invalid schema: {banned} are not permitted.", where, "invalid_json_schema")
    if "properties" in schema or schema.get("type") == "object":
        check(
            schema.get("additionalProperties") is False,
            "Invalid schema: 'additionalProperties' is required to be supplied and to be false.",
            where,
            "invalid_json_schema",
        )
        properties = schema.get("properties", {})
        check(
            sorted(schema.get("required", [])) == sorted(properties),
            "Invalid schema: 'required' is required to be an array including every key in properties.",
            where,
            "invalid_json_schema",
        )
    for name in ("properties", "$defs"):
        for key, part in schema.get(name, {}).items():
            check(
                {"type", "anyOf", "$ref"} & part.keys(),
                "Invalid schema: schema must have a 'type' key.",
                where,
            )
            check_closed(part, f"{where}.{name}.{key}")
    check_closed(schema.get("items"), f"{where}.items")
    check_closed(schema.get("anyOf"), f"{where}.anyOf")


def check_single_calls_wish(body: Mapping[str, Any]) -> None:
    name = "parallel_tool_calls"
    check(isinstance(body.get(name, True), bool), f"Invalid type for '{name}'.", name)
    said = f"Invalid value for '{name}': '{name}' is only allowed when 'tools' are specified."
    check(name not in body or body.get("tools"), said, name)


def check_output_schema(wanted: Mapping[str, Any], where: str) -> None:
    """`name`, `schema` and `strict` of a wanted JSON answer."""
    check_name(wanted["name"], f"{where}.name")
    check_schema(wanted["schema"], f"{where}.schema", f"response_format {wanted['name']!r}")
    if wanted.get("strict"):
        check_closed(wanted["schema"], f"{where}.schema")
