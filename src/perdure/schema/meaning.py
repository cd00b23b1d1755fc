"""What a schema says about kinds of values, read from its text: null allowed or not, constants, overlaps.

The answers hold for the keywords that strict schemas have (`strict.py` refuses the others).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations

from perdure.schema.graph import Schema, SchemaGraph

ALTERNATIVES = 200
EVERY_KIND = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
_SHAPES = {
    "object": ("properties", "required", "additionalProperties"),
    "array": ("items", "prefixItems"),
}


@dataclass(frozen=True, slots=True)
class Meaning:
    """Questions about the schemas of one document."""

    graph: SchemaGraph

    def target(self, schema: Schema | bool) -> Schema | bool:
        """The schema that finally counts, after references and lone members of allOf, anyOf and oneOf."""
        while isinstance(schema, dict):
            if (id(schema), "$ref") in self.graph.targets:
                schema = self.graph.targets[id(schema), "$ref"]
            elif (members := alternatives(schema) or _list(schema.get("allOf"))) and len(members) == 1:
                schema = members[0]
            else:
                return schema
        return schema

    def leaves(self, schema: Schema | bool) -> list[Schema]:
        """The alternatives of a schema, those of alternatives included, each once; itself if it has none."""
        found: dict[int, Schema] = {}
        stack: list[Schema | bool] = [schema]
        seen: set[int] = set()
        while stack:
            each = self.target(stack.pop())
            if not isinstance(each, dict) or id(each) in seen:
                continue
            seen.add(id(each))
            if members := alternatives(each):
                stack += reversed(members)
            else:
                found[id(each)] = each
        return list(found.values())

    def kinds(self, schema: Schema | bool) -> frozenset[str]:
        """The types that values of a schema may have, nothing known being all of them."""
        return frozenset[str]().union(*(_kinds(leaf) for leaf in self.leaves(schema)))

    def allows_null(self, schema: Schema | bool) -> bool:
        """Whether null is a value of the schema."""
        if schema is True:
            return True
        return any(_leaf_allows_null(leaf) for leaf in self.leaves(schema))

    def fixed(self, schema: Schema | bool) -> bool:
        """Whether a property has one constant as its only value and its default, so that it may as well be
        required: leaving it out says the same.
        """
        leaf = self.target(schema)
        if not isinstance(schema, dict) or not isinstance(leaf, dict):
            return False
        options = _options(leaf)
        default = schema.get("default")
        return options is not None and len(options) == 1 and default is not None and _key(default) in options

    def apart(self, members: Iterable[Schema | bool]) -> bool:
        """Whether no value can match two of several alternatives, as far as their text shows."""
        leaves = [self.leaves(member) for member in members]
        if sum(map(len, leaves)) > ALTERNATIVES:
            return False
        return all(
            self._two_apart(one, other)
            for some, others in combinations(leaves, 2)
            for one in some
            for other in others
        )

    def _two_apart(self, one: Schema, other: Schema) -> bool:
        if not (common := _widened(_kinds(one)) & _widened(_kinds(other))):
            return True
        first, second = _options(one), _options(other)
        if first is not None and second is not None:
            return first.isdisjoint(second)
        if common != {"object"}:
            return False
        tags = dict(self.tags(one))
        return any(options.isdisjoint(tags.get(name, options)) for name, options in self.tags(other))

    def tags(self, schema: Schema) -> Iterator[tuple[str, frozenset[str]]]:
        """The properties of an object that are always there and have only certain values, with those."""
        required = _list(schema.get("required"))
        properties = schema.get("properties")
        for name, inner in properties.items() if isinstance(properties, dict) else ():
            if name in required or self.fixed(inner):
                leaf = self.target(inner)
                options = _options(leaf) if isinstance(leaf, dict) else None
                # The empty set is apart from itself, too.
                if options:
                    yield name, options


def alternatives(schema: Schema) -> list[Schema | bool]:
    """The members of `anyOf` or `oneOf`."""
    return _list(schema.get("anyOf")) or _list(schema.get("oneOf"))


def stated_kinds(schema: Schema) -> list[str] | None:
    """The types of a schema: those under `type`, else what its constants or its keywords show."""
    match schema.get("type"):
        case str() as kind:
            return [kind]
        case list() as several:
            return [str(kind) for kind in several]
    constants = [schema["const"]] if "const" in schema else _list(schema.get("enum"))
    if constants:
        return list(dict.fromkeys(kind_of(constant) for constant in constants))
    for kind, keywords in _SHAPES.items():
        if any(keyword in schema for keyword in keywords):
            return [kind]
    return None


def kind_of(value: object) -> str:
    """The most special type of a JSON value: `integer` also for 1.0."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "number"
        case str():
            return "string"
        case dict():
            return "object"
        case _:
            return "array"


def tag(value: object) -> str:
    """A constant as text that is equal exactly for constants that JSON Schema takes as equal."""
    return _key(value)


def _kinds(leaf: Schema) -> frozenset[str]:
    kinds = stated_kinds(leaf)
    return EVERY_KIND if kinds is None else frozenset(kinds)


def _widened(kinds: frozenset[str]) -> frozenset[str]:
    return kinds | {"integer"} if "number" in kinds else kinds


def _leaf_allows_null(leaf: Schema) -> bool:
    options = _options(leaf)
    return "null" in _kinds(leaf) and (options is None or _key(None) in options)


def _options(leaf: Schema) -> frozenset[str] | None:
    """The constants that a schema allows; None if there is no such list."""
    known: frozenset[str] | None = None
    if "const" in leaf:
        known = frozenset({_key(leaf["const"])})
    if isinstance(members := leaf.get("enum"), list):
        listed = frozenset(map(_key, members))
        known = listed if known is None else known & listed
    return known


def _key(value: object) -> str:
    # In Python 1 equals True, in JSON Schema it equals 1.0 only.
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f"{kind_of(value)} {value!r}"


def _list(value: object) -> list[Schema | bool]:
    return value if isinstance(value, list) else []
