"""JSON Schema in the subset of OpenAPI's schemas that older Gemini endpoints take.

Nothing is dropped in silence: what the subset cannot say is said in the description of its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.models.jsontext import encode

Schema = dict[str, Any]

MAX_DEPTH = 24
MAX_NODES = 5000

_TYPES = ("string", "number", "integer", "boolean", "array", "object")
_FORMATS: Mapping[str, tuple[str, ...]] = {
    "string": ("date-time",),
    "number": ("float", "double"),
    "integer": ("int32", "int64"),
}
_BOUNDS: Mapping[str, tuple[str, ...]] = {
    "string": ("minLength", "maxLength", "pattern"),
    "number": ("minimum", "maximum"),
    "integer": ("minimum", "maximum"),
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
}
# They tell a validator nothing.
_WITHOUT_MEANING = {"$schema", "$id", "$comment", "$anchor", "$defs", "definitions", "$vocabulary"}


def reduced_schema(schema: Mapping[str, Any]) -> Schema:
    """The schema in the subset; references are inlined until the schema would grow beyond bounds."""
    return _Reducer(schema).reduce(schema, ())


class _Reducer:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._nodes = 0

    def reduce(self, schema: Any, path: tuple[str, ...]) -> Schema:
        """One schema; `path` are the references that were followed to get here."""
        self._nodes += 1
        if schema is True or schema == {}:
            return {"type": "STRING", "description": "Any JSON value, written as JSON text."}
        if not isinstance(schema, Mapping):
            return {"type": "STRING", "description": f"Only what fits {_json(schema)}."}
        if "$ref" in schema:
            return self._referred(schema, path)
        left = {key: value for key, value in schema.items() if key not in _WITHOUT_MEANING}
        self._merge_all_of(left)
        words = [text for key in ("title", "description") if isinstance(text := left.pop(key, None), str)]
        made, nullable = self._shape(left, words, path)
        if left:
            words.append(f"Further rules of JSON Schema: {_json(left)}")
        return _dressed(made, "\n".join(word for word in words if word), nullable)

    # ---- references ----------------------------------------------------------------------------

    def _referred(self, schema: Mapping[str, Any], path: tuple[str, ...]) -> Schema:
        name = str(schema["$ref"])
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        target = self._find(name)
        if target is None or name in path or len(path) >= MAX_DEPTH or self._nodes >= MAX_NODES:
            said = (
                f"An object of the kind {name.rpartition('/')[2] or 'of the whole'}, as described elsewhere."
            )
            return self.reduce({"type": "object", **beside, "description": _joined(beside, said)}, path)
        if not isinstance(target, Mapping):
            return self.reduce(target, (*path, name))
        return self.reduce({**target, **beside}, (*path, name))

    def _find(self, pointer: str) -> Any:
        if not pointer.startswith("#"):
            return None
        found: Any = self._root
        for step in pointer[1:].split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, Mapping) and key in found:
                found = found[key]
            elif isinstance(found, list) and key.isdecimal() and int(key) < len(found):
                found = found[int(key)]
            else:
                return None
        return found

    def _merge_all_of(self, left: Schema) -> None:
        """Take the members of `allOf` into the schema, as far as they do not contradict it."""
        members = left.pop("allOf", None)
        kept: list[Any] = []
        for member in members if isinstance(members, list) else ():
            if isinstance(member, Mapping) and "$ref" in member:
                target = self._find(str(member["$ref"]))
                member = {**target, **member} if isinstance(target, Mapping) else member
                member = {key: value for key, value in member.items() if key != "$ref"}
            if not isinstance(member, Mapping) or not _absorb(left, member):
                kept.append(member)
        if kept:
            left["allOf"] = kept

    # ---- shapes --------------------------------------------------------------------------------

    def _shape(self, left: Schema, words: list[str], path: tuple[str, ...]) -> tuple[Schema, bool]:
        """What the subset can say, taken out of `left`; and whether null is allowed."""
        types, nullable = _types(left)
        branches = self._branches(left, types, words)
        if branches is not None:
            nullable = nullable or any(_is_null(branch) for branch in branches)
            real = [branch for branch in branches if not _is_null(branch)]
            made = [self.reduce(branch, path) for branch in real]
            return (made[0] if len(made) == 1 else {"anyOf": made}) if made else {"type": "STRING"}, nullable
        if len(types) > 1:
            return {"anyOf": [self._typed(kind, left, words, path) for kind in types]}, nullable
        return self._typed(types[0] if types else _guess(left), left, words, path), nullable

    def _branches(self, left: Schema, types: Sequence[str], words: list[str]) -> list[Any] | None:
        """The alternatives of a schema that is nothing but alternatives."""
        for key in ("anyOf", "oneOf"):
            members = left.get(key)
            if isinstance(members, list) and members and not types and left.keys() <= {key, "default"}:
                del left[key]
                if key == "oneOf" and len(members) > 1:
                    words.append("Exactly one of the alternatives must fit.")
                return members
        return None

    def _typed(self, kind: str, left: Schema, words: list[str], path: tuple[str, ...]) -> Schema:
        made: Schema = {"type": kind.upper()}
        if left.get("format") in _FORMATS.get(kind, ()):
            made["format"] = left.pop("format")
        for key in _BOUNDS.get(kind, ()):
            if key in left and isinstance(left[key], str if key == "pattern" else int | float):
                made[key] = left.pop(key)
        match kind:
            case "string":
                made |= _enumeration(left)
            case "array":
                made["items"] = self._items(left, words, path)
            case "object":
                made |= self._members(left, path)
        return made

    def _items(self, left: Schema, words: list[str], path: tuple[str, ...]) -> Schema:
        prefix, items = left.pop("prefixItems", None), left.pop("items", {})
        if isinstance(items, list):
            prefix, items = items, left.pop("additionalItems", {})
        if not isinstance(prefix, list) or not prefix:
            return self.reduce(items, path)
        words.append(f"The elements are, in their order: {_json(prefix)}")
        if items is not False and items != {}:
            prefix = [*prefix, items]
        made = [self.reduce(element, path) for element in prefix]
        distinct = [one for index, one in enumerate(made) if one not in made[:index]]
        return distinct[0] if len(distinct) == 1 else {"anyOf": distinct}

    def _members(self, left: Schema, path: tuple[str, ...]) -> Schema:
        properties = left.pop("properties", None)
        if not isinstance(properties, Mapping) or not properties:
            # An empty set of properties is refused; without any, the object is free.
            return {}
        if self._nodes >= MAX_NODES:
            left["properties"] = properties
            return {}
        made: Schema = {"properties": {name: self.reduce(one, path) for name, one in properties.items()}}
        if left.get("additionalProperties") is False:
            # Models are held to the properties that are listed.
            left.pop("additionalProperties")
        required = left.get("required")
        if isinstance(required, list):
            known = [name for name in required if name in properties]
            unknown = [name for name in required if name not in properties]
            left.pop("required")
            if known:
                made["required"] = known
            if unknown:
                left["required"] = unknown
        return made


def _types(left: Schema) -> tuple[list[str], bool]:
    """The types a schema allows, without null; and whether it allows null."""
    given = left.pop("type", None)
    named = given if isinstance(given, list) else [given]
    nullable = "null" in named or left.pop("nullable", False) is True
    if "const" in left and not isinstance(left["const"], dict | list):
        left["enum"] = [left.pop("const")]
    values = left.get("enum")
    if isinstance(values, list) and None in values:
        nullable = nullable or given is None
        left["enum"] = [value for value in values if value is not None]
        if not left["enum"]:
            del left["enum"]
    return [kind for kind in named if kind in _TYPES], nullable


def _guess(left: Mapping[str, Any]) -> str:
    """The type of a schema that names none, from what it says."""
    values = left.get("enum")
    if isinstance(values, list) and values:
        if all(isinstance(value, bool) for value in values):
            return "boolean"
        if all(isinstance(value, int) and not isinstance(value, bool) for value in values):
            return "integer"
        if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            return "number"
        return "string"
    if left.keys() & {"properties", "required", "additionalProperties", "patternProperties"}:
        return "object"
    if left.keys() & {"items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains"}:
        return "array"
    if left.keys() & {"minimum", "maximum", "multipleOf", "exclusiveMinimum", "exclusiveMaximum"}:
        return "number"
    return "string"


def _enumeration(left: Schema) -> Schema:
    """The values of a string; the subset knows only texts that are not empty."""
    values = left.get("enum")
    if not isinstance(values, list) or not values:
        return {}
    if not all(isinstance(value, str) and value for value in values):
        return {}
    return {"format": "enum", "enum": list(dict.fromkeys(left.pop("enum")))}


def _absorb(left: Schema, member: Mapping[str, Any]) -> bool:
    """Merge a member of `allOf` into a schema; False, and nothing done, where they would collide."""
    merged = dict(left)
    for key, value in member.items():
        if key in _WITHOUT_MEANING or merged.get(key, value) == value:
            merged.setdefault(key, value)
        elif key == "required" and isinstance(value, list) and isinstance(merged[key], list):
            merged[key] = list(dict.fromkeys([*merged[key], *value]))
        elif key == "properties" and not value.keys() & merged[key].keys():
            merged[key] = {**merged[key], **value}
        elif key in ("description", "title") and isinstance(value, str):
            merged[key] = f"{merged[key]}\n{value}"
        else:
            return False
    for key in _WITHOUT_MEANING:
        merged.pop(key, None)
    left.clear()
    left.update(merged)
    return True


def _dressed(made: Schema, words: str, nullable: bool) -> Schema:
    """The schema with its description; both stand in the alternatives where it has any."""
    if "anyOf" in made:
        # Beside alternatives nothing else may be said.
        return {"anyOf": [_dressed(branch, words, nullable) for branch in made["anyOf"]]}
    described = "\n".join(part for part in (words, made.get("description", "")) if part)
    if described:
        made = {**made, "description": described}
    return {**made, "nullable": True} if nullable else made


def _is_null(schema: Any) -> bool:
    if not isinstance(schema, Mapping):
        return False
    return schema.get("type") == "null" or ("const" in schema and schema["const"] is None)


def _joined(beside: Mapping[str, Any], said: str) -> str:
    before = beside.get("description")
    return f"{before}\n{said}" if isinstance(before, str) and before else said


def _json(value: Any) -> str:
    return encode(value).decode()
