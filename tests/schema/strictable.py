"""Random schemas that have a strict form, and for each of them values in both forms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

Json = Any
NAMES = ("a", "b", "c", "kind", "a b", "$ref", "é")
ESCAPED = {"x": "x", "y": "y", "z~/ %é": "z~0~1%20%25%C3%A9"}
TEXTS = ("", "a", "ab", "A-1042", "xxxx")
PATTERNS = {"^[A-Z]-\\d{4}$": "A-1042", "^a+$": "aa", "^$": ""}


@dataclass
class Author:
    """Writes schemas. `ambiguous` becomes True when a value may be of several alternatives."""

    random: Random
    ambiguous: bool = False
    _depth: int = 0

    def schema(self) -> dict[str, Json]:
        root = self._object(3)
        root["$defs"] = {name: self._object(2) for name in ESCAPED}
        return root

    def _part(self, depth: int) -> dict[str, Json]:
        kinds = [self._scalar, self._scalar, self._constant]
        if depth > 0:
            kinds += [self._object, self._array, self._tuple, self._union, self._tagged, self._reference]
        part = self.random.choice(kinds)(depth - 1)
        if self.random.random() < 0.2:
            part |= {"description": "says something"}
        if self.random.random() < 0.1 and "anyOf" not in part and "$ref" not in part and "oneOf" not in part:
            part = _nullable(part)
        return part

    def _scalar(self, _: int) -> dict[str, Json]:
        match self.random.randrange(6):
            case 0:
                return {"type": "string", "pattern": self.random.choice(list(PATTERNS))}
            case 1:
                return {"type": "string", "minLength": self.random.randrange(3), "maxLength": 4}
            case 2:
                return {"type": "integer", "minimum": self.random.randrange(3), "multipleOf": 2}
            case 3:
                return {"type": "number", "exclusiveMaximum": 5}
            case 4:
                return {"type": ["integer", "string"], "minimum": 1}
            case _:
                return {"type": self.random.choice(["boolean", "string", "null"])}

    def _constant(self, _: int) -> dict[str, Json]:
        match self.random.randrange(4):
            case 0:
                return {"enum": self.random.sample([1, 2, "a", None, 1.5], 3)}
            case 1:
                return {"const": "k", "default": "k"}
            case 2:
                return {"const": 7}
            case _:
                return {"type": "string", "enum": ["a", "ab"]}

    def _object(self, depth: int) -> dict[str, Json]:
        names = self.random.sample(NAMES, self.random.randrange(1, 4))
        part: dict[str, Json] = {
            "type": "object",
            "properties": {name: self._part(depth) for name in names},
            "required": [name for name in names if self.random.random() < 0.4],
        }
        if self.random.random() < 0.5:
            part["additionalProperties"] = False
        return part

    def _array(self, depth: int) -> dict[str, Json]:
        items = self._part(depth)
        return {"type": "array", "items": items, "maxItems": 3}

    def _tuple(self, depth: int) -> dict[str, Json]:
        heads = [self._part(depth) for _ in range(2)]
        return {"type": "array", "prefixItems": heads, "minItems": self.random.randrange(3)}

    def _union(self, depth: int) -> dict[str, Json]:
        self.ambiguous = True
        return {"anyOf": [self._part(depth) for _ in range(self.random.randrange(1, 4))]}

    def _tagged(self, depth: int) -> dict[str, Json]:
        members = []
        for tag in self.random.sample(["one", "two", "three"], 2):
            member = self._object(depth)
            default = self.random.random() < 0.5
            member["properties"]["tag"] = {"const": tag} | ({"default": tag} if default else {})
            if not default:
                member["required"].append("tag")
            members.append(member)
        keyword = self.random.choice(["oneOf", "anyOf"])
        return {keyword: members, "discriminator": {"propertyName": "tag"}}

    def _reference(self, _: int) -> dict[str, Json]:
        name = self.random.choice(["#", *ESCAPED])
        return {"$ref": name if name == "#" else "#/$defs/" + ESCAPED[name]}


def _nullable(part: dict[str, Json]) -> dict[str, Json]:
    if part.get("type") not in (None, "null") and isinstance(part["type"], str) and "enum" not in part:
        return part | {"type": [part["type"], "null"]}
    return {"anyOf": [part, {"type": "null"}]}


def parts_of(schema: dict[str, Json]) -> Iterator[dict[str, Json]]:
    """Every schema in a schema of `Author`, itself included."""
    yield schema
    inner = [*schema.get("properties", {}).values(), *schema.get("$defs", {}).values()]
    inner += [*schema.get("anyOf", []), *schema.get("oneOf", []), *schema.get("prefixItems", [])]
    inner += [schema["items"]] if "items" in schema else []
    for each in inner:
        yield from parts_of(each)


class Hopeless(Exception):
    """The value would never end."""


@dataclass
class Writer:
    """Writes values for a schema of `Author`, as (strict form, what must come back)."""

    random: Random
    root: dict[str, Json]
    budget: int = field(default=200)

    def pair(self, schema: dict[str, Json] | None = None) -> tuple[Json, Json]:
        schema = self.root if schema is None else schema
        self.budget -= 1
        if self.budget < 0:
            raise Hopeless
        if "$ref" in schema:
            return self.pair(self._target(schema["$ref"]))
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                return self.pair(self.random.choice(schema[keyword]))
        if "const" in schema:
            return schema["const"], schema["const"]
        if "enum" in schema:
            return (self.random.choice(schema["enum"]),) * 2
        kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        match self.random.choice(kinds):
            case "object":
                return self._object(schema)
            case "array":
                return self._array(schema)
            case kind:
                return (self._scalar(kind, schema),) * 2

    def _target(self, reference: str) -> dict[str, Json]:
        if reference == "#":
            return self.root
        name = next(name for name, escaped in ESCAPED.items() if reference.endswith(f"/{escaped}"))
        return self.root["$defs"][name]

    def _object(self, schema: dict[str, Json]) -> tuple[Json, Json]:
        strict, back = {}, {}
        for name, inner in schema["properties"].items():
            must = name in schema["required"] or "default" in inner
            if must or (self.budget > 100 and self.random.random() < 0.5):
                strict[name], back[name] = self.pair(inner)
            else:
                strict[name] = None
                if self.allows_null(inner):
                    back[name] = None
        return strict, back

    def allows_null(self, schema: dict[str, Json]) -> bool:
        if "$ref" in schema:
            return self.allows_null(self._target(schema["$ref"]))
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                return any(map(self.allows_null, schema[keyword]))
        if "const" in schema or "enum" in schema:
            return None in schema.get("enum", [schema.get("const")])
        return "null" in schema["type"] if isinstance(schema["type"], list) else schema["type"] == "null"

    def _array(self, schema: dict[str, Json]) -> tuple[Json, Json]:
        if "prefixItems" in schema:
            count = self.random.randrange(schema["minItems"], 3)
            pairs = [self.pair(schema["prefixItems"][index]) for index in range(count)]
        else:
            pairs = [self.pair(schema["items"]) for _ in range(self.random.randrange(3))]
        return [strict for strict, _ in pairs], [back for _, back in pairs]

    def _scalar(self, kind: str, schema: dict[str, Json]) -> Json:
        match kind:
            case "string" if pattern := schema.get("pattern"):
                return PATTERNS[pattern]
            case "string":
                return self.random.choice(
                    [text for text in TEXTS[:3] if len(text) >= schema.get("minLength", 0)]
                )
            case "integer":
                return self.random.choice([2, 4, 4.0])
            case "number":
                return self.random.choice([-1, 0.5, 4])
            case "boolean":
                return self.random.random() < 0.5
            case _:
                return None


def spoiled(value: Json, random: Random) -> Json:
    """The value with one place changed, or itself."""
    match value:
        case dict() if value and random.random() < 0.8:
            name = random.choice(list(value))
            match random.randrange(4):
                case 0:
                    return {key: inner for key, inner in value.items() if key != name}
                case 1:
                    return value | {"other": 1}
                case _:
                    return value | {name: spoiled(value[name], random)}
        case list() if value and random.random() < 0.8:
            index = random.randrange(len(value))
            return [*value[:index], spoiled(value[index], random), *value[index + 1 :]]
        case _:
            return random.choice([None, True, 0, 1, 3, 4.5, "", "a", "zzz", "one", [], {}])
