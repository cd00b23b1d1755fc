"""Checks that both protocols share; a broken rule is a `Violation`."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jsonschema_rs

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
IMAGE_DATA = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,(.*)", re.DOTALL)
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
        return
    found = IMAGE_DATA.fullmatch(url)
    check(
        found, f"Invalid '{where}': expected a URL or a base64 data URL of an image.", where, "invalid_image"
    )
    assert found is not None
    try:
        content = base64.b64decode(found[1], validate=True)
    except binascii.Error:
        content = b""
    check(content, f"Invalid '{where}': the image is no base64.", where, "invalid_base64_image")


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
    check(jsonschema_rs.meta.is_valid(dict(schema)), f"{said}: it is no JSON Schema.", where, code)


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


def check_output_schema(wanted: Mapping[str, Any], where: str) -> None:
    """`name`, `schema` and `strict` of a wanted JSON answer."""
    check_name(wanted["name"], f"{where}.name")
    check_schema(wanted["schema"], f"{where}.schema", f"response_format {wanted['name']!r}")
    if wanted.get("strict"):
        check_closed(wanted["schema"], f"{where}.schema")
