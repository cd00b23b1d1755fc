"""Strict form: the author's schema as a model is asked for it, every object closed and every key required.

What may be left out becomes nullable instead; `restoring.py` is the way back. A schema keeps every rule it
has: a construct without a strict form is refused, with its path, and never dropped.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import quote

from perdure.schema.bounds import CheckedSchema, check_schema, checked, schema_text
from perdure.schema.graph import Schema
from perdure.schema.meaning import ALTERNATIVES, Meaning, alternatives, stated_kinds
from perdure.schema.refusals import SchemaRefused
from perdure.schema.rulebook import OWN_RULES
from perdure.schema.wording import printable

_NOTES = frozenset(
    {
        "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly",
        "format", "contentEncoding", "contentMediaType", "contentSchema",
    }
)  # fmt: skip
# They say nothing that the strict form does not say otherwise.
_DROPPED = frozenset(
    {"$schema", "$id", "id", "$anchor", "$comment", "$defs", "definitions", "discriminator", "$vocabulary"}
)
_OBJECT = frozenset({"properties", "required", "additionalProperties"})
_ARRAY = frozenset({"items", "prefixItems"})
_COMBINING = frozenset({"$ref", "anyOf", "oneOf", "allOf"})
_RULES = frozenset(OWN_RULES) - {"minProperties", "maxProperties", "contentEncoding", "contentMediaType"}
_HINTS = {
    "patternProperties": "name the properties",
    "propertyNames": "name the properties",
    "minProperties": "require the properties themselves",
    "maxProperties": "name the properties",
    "not": "say what is allowed instead",
    "if": "use anyOf",
    "dependentRequired": "use anyOf",
    "dependentSchemas": "use anyOf",
    "dependencies": "use anyOf",
    "nullable": 'add "null" to the type',
    "$recursiveRef": "use $ref",
    "$dynamicRef": "use $ref",
}
_TITLES = ("title", "description")
_NULL: Schema = {"type": "null"}


@dataclass(slots=True)
class StrictForm:
    """The strict form of a checked schema.

    `every_key` False does not require what may be left out, so that a value can be recognised by the form.
    `parts` has the strict form of each part, by the identity of the part.
    """

    author: CheckedSchema
    every_key: bool = True
    meaning: Meaning = field(init=False)
    parts: dict[int, Schema] = field(default_factory=dict)
    definitions: dict[str, Schema] = field(default_factory=dict)
    root: Schema = field(init=False)
    _names: dict[int, str] = field(default_factory=dict)
    _waiting: deque[tuple[str, Schema]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.meaning = Meaning(self.author.graph)
        start = self.meaning.target(self.author.root)
        if not isinstance(start, dict) or stated_kinds(start) != ["object"] or alternatives(start):
            raise SchemaRefused(
                (), 'must have type "object" alone at the root; wrap other values in a property'
            )
        titles = {key: self.author.root[key] for key in _TITLES if key in self.author.root}
        self.root = self._part(start) | titles
        while self._waiting:
            name, schema = self._waiting.popleft()
            self.definitions[name] = self._part(schema)

    @property
    def schema(self) -> Schema:
        """The whole document."""
        return self.document(self.root)

    def document(self, part: Schema) -> Schema:
        """A document with one part as its root."""
        head = {"$schema": self.author.root["$schema"]} if "$schema" in self.author.root else {}
        definitions: Schema = {self._stored: self.definitions} if self.definitions else {}
        return head | part | definitions

    @property
    def _stored(self) -> str:
        return "$defs" if self.author.dialect.year >= 2019 else "definitions"

    def _part(self, schema: Schema | bool, path: tuple[str | int, ...] = ()) -> Schema:
        if not isinstance(schema, dict):
            raise SchemaRefused(path, f"{str(schema).lower()} has no strict form; describe the value")
        path = self._path(schema)
        self._refuse_unsupported(schema, path)
        notes = {key: value for key, value in schema.items() if key in _NOTES}
        if notes.get("default", ...) is None:
            del notes["default"]
        if _COMBINING.isdisjoint(schema):
            part = self._plain(schema, path) | notes
        else:
            part = self._combined(schema, path, notes)
        self.parts[id(schema)] = part
        return part

    def _path(self, schema: Schema) -> tuple[str | int, ...]:
        return self.author.graph.paths[id(schema)]

    def _refuse_unsupported(self, schema: Schema, path: tuple[str | int, ...]) -> None:
        known = _NOTES | _DROPPED | _OBJECT | _ARRAY | _COMBINING | _RULES
        for key in schema:
            if key not in known and not key.startswith("x-"):
                hint = f"; {_HINTS[key]}" if key in _HINTS else ""
                raise SchemaRefused((*path, key), f"{printable(key, 64)} has no strict form{hint}")

    def _combined(self, schema: Schema, path: tuple[str | int, ...], notes: Schema) -> Schema:
        keyword = next(key for key in schema if key in _COMBINING)
        beside = [key for key in schema if key in _OBJECT | _ARRAY | _COMBINING | _RULES and key != keyword]
        if beside:
            raise SchemaRefused(
                (*path, beside[0]), f"{beside[0]} beside {keyword} has no strict form; move it into {keyword}"
            )
        if keyword == "$ref":
            target = self.author.graph.targets[id(schema), keyword]
            if not isinstance(target, dict):
                raise SchemaRefused((*path, keyword), "leads to a schema without a strict form")
            reference: Schema = {"$ref": f"#/{self._stored}/{_escaped(self._name(target))}"}
            return {"anyOf": [reference], **notes} if notes else reference
        members = cast("list[Schema | bool]", schema[keyword])
        if keyword == "allOf" and len(members) > 1:
            raise SchemaRefused((*path, keyword), "allOf has no strict form; write its members as one schema")
        if keyword == "oneOf" and not self.meaning.apart(members):
            raise SchemaRefused(
                (*path, keyword),
                "the alternatives of oneOf may overlap, or there are more than "
                f"{ALTERNATIVES}; tell them apart by a required constant, or use anyOf",
            )
        parts = [self._part(member, (*path, keyword, index)) for index, member in enumerate(members)]
        if len(parts) == 1 and (not notes or "$ref" not in parts[0]):
            return parts[0] | notes
        return {"anyOf": parts, **notes}

    def _plain(self, schema: Schema, path: tuple[str | int, ...]) -> Schema:
        kinds = stated_kinds(schema)
        if not kinds:
            raise SchemaRefused(path, "allows a value of any type, which has no strict form; give its type")
        part: Schema = {"type": schema.get("type", kinds[0] if len(kinds) == 1 else kinds)}
        for key in _RULES & schema.keys() - {"type"}:
            constants = schema[key] if key == "enum" else [schema[key]] if key == "const" else []
            if any(isinstance(constant, dict | list) for constant in cast("list[object]", constants)):
                raise SchemaRefused((*path, key), f"{key} with objects or arrays has no strict form")
        part |= {key: value for key, value in schema.items() if key in _RULES}
        for keywords, kind in ((_OBJECT, "object"), (_ARRAY, "array")):
            stray = [key for key in schema if key in keywords and kind not in kinds]
            if stray:
                raise SchemaRefused((*path, stray[0]), f"{stray[0]} has no effect on this type; remove it")
        if "object" in kinds:
            part |= self._object(schema, path)
        if "array" in kinds:
            part |= self._array(schema, path)
        return part

    def _object(self, schema: Schema, path: tuple[str | int, ...]) -> Schema:
        if schema.get("additionalProperties", False) is not False:
            raise SchemaRefused(
                (*path, "additionalProperties"), "has no strict form; name the properties, and no others"
            )
        if "properties" not in schema and "additionalProperties" not in schema:
            raise SchemaRefused(path, "allows any properties, which has no strict form; name them")
        properties = cast("dict[str, Schema | bool]", schema.get("properties", {}))
        required = cast("list[str]", schema.get("required", []))
        if unknown := [name for name in required if name not in properties]:
            raise SchemaRefused(
                (*path, "required"),
                f"requires {printable(unknown[0], 64)}, which is not among the properties",
            )
        parts: dict[str, Schema] = {}
        for name, inner in properties.items():
            part = self._part(inner, (*path, "properties", name))
            parts[name] = nullable(part) if self.droppable(schema, name) else part
        return {
            "properties": parts,
            "required": list(parts) if self.every_key else required,
            "additionalProperties": False,
        }

    def droppable(self, schema: Schema, name: str) -> bool:
        """Whether null under a property exists only because of the strict form."""
        inner = cast("dict[str, Schema | bool]", schema["properties"])[name]
        return not (
            name in cast("list[str]", schema.get("required", []))
            or self.meaning.allows_null(inner)
            or self.meaning.fixed(inner)
        )

    def _array(self, schema: Schema, path: tuple[str | int, ...]) -> Schema:
        heads, rest = schema.get("prefixItems"), schema.get("items")
        if isinstance(rest, list) or (heads is not None and not self.author.dialect.means("prefixItems")):
            raise SchemaRefused((*path, "items"), "a list of items has no strict form before draft 2020-12")
        part: Schema = {}
        if isinstance(heads, list):
            part["prefixItems"] = [
                self._part(head, (*path, "prefixItems", index)) for index, head in enumerate(heads)
            ]
            # Nothing is said about more items: the array is closed, like an object.
            part["items"] = False
        elif "items" not in schema:
            raise SchemaRefused(
                path, "allows items of any type, which has no strict form; describe the items"
            )
        if rest is not None and rest is not False:
            part["items"] = self._part(cast("Schema | bool", rest), (*path, "items"))
        return part

    def _name(self, target: Schema) -> str:
        if (name := self._names.get(id(target))) is None:
            path = self._path(target)
            name = str(path[1]) if len(path) == 2 and path[0] in ("$defs", "definitions") else _word(path)
            while name in self._names.values():
                name += "_"
            self._names[id(target)] = name
            self._waiting.append((name, target))
        return name


def strict_form(schema: Mapping[str, object], *, what: str = "schema") -> StrictForm:
    """The strict form of a JSON Schema, which must be one that `check_schema` accepts.

    Raises SchemaRefused with the path of whatever has no strict form; `what` names the schema in the message.
    """
    check_schema(schema, what=what)
    try:
        form = StrictForm(checked(schema_text(schema)))
    except SchemaRefused as refused:
        raise refused.within(what) from None
    check_schema(form.schema, what=f"strict form of the {what}")
    return form


def nullable(part: Schema) -> Schema:
    """The same strict schema with null allowed besides."""
    kind = part.get("type")
    simple = kind not in ("object", "array") and "enum" not in part and "const" not in part
    if isinstance(kind, str) and simple:
        return part | {"type": [kind, "null"]}
    if isinstance(members := part.get("anyOf"), list):
        return part | {"anyOf": [*members, _NULL]}
    notes = {key: value for key, value in part.items() if key in (*_TITLES, "default")}
    bare = {key: value for key, value in part.items() if key not in notes}
    return {"anyOf": [bare, _NULL], **notes}


def _word(path: tuple[str | int, ...]) -> str:
    return re.sub(r"\W+", "_", "_".join(map(str, path))) or "root"


def _escaped(name: str) -> str:
    return quote(name.replace("~", "~0").replace("/", "~1"), safe="")
