"""A small value that satisfies a JSON Schema, made without chance."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import jsonschema_rs

from perdure.models.pattern_sample import sample_text

_MOST_DEPTH = 40
_MOST_ITEMS = 1000
_MOST_SCHEMAS = 20_000
_FORMATS = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "P1D",
    "email": "someone@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
_UNLIKE = object()


def sample(schema: Mapping[str, Any], hints: Iterable[Mapping[str, Any]] = ()) -> Any:
    """A minimal value of `schema`; the same for the same arguments.

    Required properties only, the first alternative that can be built, bounds met as closely as possible.
    A property takes the value of the first of `hints` that has its name and fits its schema; an optional
    property that the first hints name is added too. Keywords beyond the common ones (`not`, `if`,
    `contains`, remote references) are not considered, so the value of an unusual schema may not satisfy it.
    A schema that is invalid, impossible or endless gives None.
    """
    if not jsonschema_rs.meta.is_valid(dict(schema)):
        return None
    sampler = _Sampler(schema, tuple(hints))
    try:
        return sampler.value(schema, 0)
    except _Impossible:
        return None


def find_hints(value: Any) -> dict[str, Any]:
    """Members of a JSON value by name, from all depths; the outermost and first one of a name wins."""
    found: dict[str, Any] = {}
    level = [value]
    for _ in range(_MOST_DEPTH):
        deeper: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                for key, member in item.items():
                    found.setdefault(key, member)
                deeper.extend(item.values())
            elif isinstance(item, list):
                deeper.extend(item)
        level = deeper
    return found


class _Impossible(Exception):
    """No value: the schema is false, endless or refers to nothing."""


@dataclass
class _Sampler:
    root: Mapping[str, Any]
    hints: tuple[Mapping[str, Any], ...]
    seen: int = 0

    def value(self, schema: Any, depth: int) -> Any:
        self._spend()
        if schema is True:
            return None
        if not isinstance(schema, Mapping) or depth > _MOST_DEPTH:
            raise _Impossible
        schema = self._merged(schema, depth)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return schema["enum"][0]
        for keyword in ("anyOf", "oneOf"):
            if schema.get(keyword):
                rest = {key: item for key, item in schema.items() if key != keyword}
                return self._first_possible(schema, rest, schema[keyword], depth)
        for candidate in (*_list(schema.get("examples")), schema.get("default", _UNLIKE)):
            if candidate is not _UNLIKE and self._satisfies(schema, candidate):
                return candidate
        return self._of_type(schema, depth)

    def _first_possible(
        self, whole: Mapping[str, Any], rest: Mapping[str, Any], branches: list[Any], depth: int
    ) -> Any:
        """A value of the first branch whose value fits the whole schema, else of the first that has one."""
        possible: list[Any] = []
        for branch in branches:
            try:
                value = self.value({"allOf": [rest, branch]}, depth + 1)
            except _Impossible:
                continue
            if self._satisfies(whole, value):
                return value
            possible.append(value)
        if not possible:
            raise _Impossible
        return possible[0]

    def _of_type(self, schema: Mapping[str, Any], depth: int) -> Any:
        match _type_of(schema):
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, depth)
            case "string":
                return _string(schema)
            case "integer":
                return _number(schema, whole=True)
            case "number":
                return _number(schema, whole=False)
            case "boolean":
                return True
            case _:
                return None

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        properties = schema.get("properties") or {}
        required = [name for name in _list(schema.get("required")) if isinstance(name, str)]
        wanted = dict.fromkeys([name for name in properties if name in required or self._is_wanted(name)])
        wanted |= dict.fromkeys(required)
        result: dict[str, Any] = {}
        for name in wanted:
            subschema = properties.get(name, schema.get("additionalProperties", True))
            hint = self._hint(name, subschema)
            if hint is not _UNLIKE:
                result[name] = hint
            elif name in required:
                result[name] = self.value(subschema, depth + 1)
        for number in range(_count(schema, "minProperties") - len(result)):
            spare = next((name for name in properties if name not in result), f"key{number + 1}")
            result[spare] = self.value(
                properties.get(spare, schema.get("additionalProperties", True)), depth + 1
            )
        return result

    def _array(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        first = _list(schema.get("prefixItems"))
        items: list[Any] = []
        for index in range(_count(schema, "minItems")):
            subschema = first[index] if index < len(first) else schema.get("items", True)
            item = self.value(subschema, depth + 1)
            if schema.get("uniqueItems"):
                item = next((other for other in self._variants(subschema, item) if other not in items), item)
            items.append(item)
        return items

    def _variants(self, subschema: Any, item: Any) -> Iterator[Any]:
        """Other values beside `item`, as far as they are easily found."""
        yield item
        schema = self._merged(subschema, 0) if isinstance(subschema, Mapping) else {}
        yield from _list(schema.get("enum"))
        candidates: Iterable[Any] = ()
        if isinstance(item, str):
            candidates = (item[: len(item) - len(str(n))] + str(n) for n in range(_MOST_ITEMS))
        elif isinstance(item, int | float) and not isinstance(item, bool):
            step = schema.get("multipleOf", 1)
            candidates = (item + sign * n * step for n in range(1, _MOST_ITEMS) for sign in (1, -1))
        elif isinstance(item, bool):
            candidates = (not item,)
        yield from (candidate for candidate in candidates if self._satisfies(schema, candidate))

    def _merged(self, schema: Mapping[str, Any], depth: int) -> Mapping[str, Any]:
        """The schema with its references and `allOf` members laid over one another."""
        if "$ref" not in schema and "allOf" not in schema:
            return schema
        self._spend()
        if depth > _MOST_DEPTH:
            raise _Impossible
        result: dict[str, Any] = {}
        members: list[Any] = [{key: item for key, item in schema.items() if key not in ("$ref", "allOf")}]
        if "$ref" in schema:
            members.append(self._target(schema["$ref"]))
        members += _list(schema.get("allOf"))
        for member in members:
            if member is True:
                continue
            if not isinstance(member, Mapping):
                raise _Impossible
            _lay_over(result, self._merged(member, depth + 1))
        return result

    def _target(self, reference: Any) -> Any:
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise _Impossible
        target: Any = self.root
        for step in reference[1:].split("/")[1:]:
            key = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(target, Mapping) and key in target:
                target = target[key]
            elif isinstance(target, list) and key.isdecimal() and int(key) < len(target):
                target = target[int(key)]
            else:
                raise _Impossible
        return target

    def _spend(self) -> None:
        """Count a schema that is looked at: alternatives of alternatives would go on for ever."""
        self.seen += 1
        if self.seen > _MOST_SCHEMAS:
            raise _Impossible

    def _is_wanted(self, name: str) -> bool:
        return bool(self.hints) and name in self.hints[0]

    def _hint(self, name: str, subschema: Any) -> Any:
        for source in self.hints:
            if name in source and self._satisfies(subschema, source[name]):
                return source[name]
        return _UNLIKE

    def _satisfies(self, schema: Any, value: Any) -> bool:
        if isinstance(schema, bool):
            return schema
        definitions = {key: self.root[key] for key in ("$defs", "definitions") if key in self.root}
        try:
            return jsonschema_rs.is_valid({**definitions, **schema}, value, retriever=_refuse_retrieval)
        except ValueError:
            return False


def _refuse_retrieval(uri: str) -> Any:
    raise ValueError(f"{uri} is not fetched")


def _lay_over(result: dict[str, Any], member: Mapping[str, Any]) -> None:
    """Narrow `result` by another schema of the same value."""
    for key, item in member.items():
        present = result.get(key)
        match key:
            case "properties" | "$defs" | "definitions" if present:
                result[key] = {**present, **item}
            case "required" if present:
                result[key] = [*present, *(name for name in item if name not in present)]
            case "enum" if present:
                result[key] = [value for value in present if value in item]
            case "minLength" | "minimum" | "exclusiveMinimum" | "minItems" | "minProperties" if (
                present is not None
            ):
                result[key] = max(present, item)
            case "maxLength" | "maximum" | "exclusiveMaximum" | "maxItems" if present is not None:
                result[key] = min(present, item)
            case "anyOf" | "oneOf" if present:
                # Two unions of one value: keep the narrower one that a sample is more likely to miss.
                result[key] = min(present, item, key=len)
            case _:
                result[key] = item


def _type_of(schema: Mapping[str, Any]) -> str | None:
    declared = schema.get("type")
    if isinstance(declared, str):
        return declared
    names = [name for name in _list(declared) if name != "null"]
    if names:
        return str(names[0])
    if declared:
        return "null"
    implied = {
        "object": ("properties", "required", "additionalProperties", "minProperties"),
        "array": ("items", "prefixItems", "minItems"),
        "string": ("pattern", "minLength", "maxLength", "format"),
        "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    }
    return next((name for name, keys in implied.items() if any(key in schema for key in keys)), None)


def _string(schema: Mapping[str, Any]) -> str:
    least, most = int(schema.get("minLength", 0)), schema.get("maxLength")
    if isinstance(pattern := schema.get("pattern"), str):
        text = sample_text(pattern, least, most)
        if text is not None:
            return text
    text = _FORMATS.get(schema.get("format", ""), "example")
    text += "x" * min(least - len(text), _MOST_ITEMS * 10)
    return text if most is None or "format" in schema else text[: int(most)]


def _number(schema: Mapping[str, Any], *, whole: bool) -> int | float:
    step = schema.get("multipleOf") or (1 if whole else None)
    if whole and step is not None and step != int(step):
        step = 1
    low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    grain = step or _grain(low, high, above, below)
    if isinstance(above, int | float) and above >= low:
        low = (math.floor(above / grain) + 1) * grain if step else above + grain
    if isinstance(below, int | float) and below <= high:
        high = (math.ceil(below / grain) - 1) * grain if step else below - grain
    number: float = min(max(0, low), high)
    if step:
        number = (math.ceil(number / step) if number >= 0 and low > 0 else math.floor(number / step)) * step
        if number < low:
            number += step
    return int(number) if whole or float(number).is_integer() else number


def _grain(low: float, high: float, above: Any, below: Any) -> float:
    """A distance from an exclusive bound that stays inside the other bound."""
    lower = above if isinstance(above, int | float) else low
    upper = below if isinstance(below, int | float) else high
    return min(1.0, (upper - lower) / 2) if upper > lower else 1.0


def _count(schema: Mapping[str, Any], keyword: str) -> int:
    return min(int(schema.get(keyword, 0)), _MOST_ITEMS)


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []
