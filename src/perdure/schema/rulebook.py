"""The rules of a schema that look at one value only, each compiled alone so that it can be named."""

from __future__ import annotations

from dataclasses import dataclass

import jsonschema_rs

from perdure.schema.bounds import CheckedSchema
from perdure.schema.dialects import APPLYING
from perdure.schema.graph import Schema

OWN_RULES = (
    "type",
    "enum",
    "const",
    "multipleOf",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "contentEncoding",
    "contentMediaType",
)


@dataclass(frozen=True, slots=True)
class OwnRules:
    """The single-value rules of one schema: all together, and each as (keyword, argument, validator).

    `alone` says that the schema has no other rules.
    """

    whole: jsonschema_rs.Validator
    single: tuple[tuple[str, object, jsonschema_rs.Validator], ...]
    alone: bool


class Rulebook:
    """The compiled single-value rules of a schema's parts. Filled when first needed, shared by all walks."""

    __slots__ = ("_own", "_patterns", "checked")

    def __init__(self, checked: CheckedSchema) -> None:
        self.checked = checked
        self._own: dict[int, OwnRules] = {}
        self._patterns: dict[str, jsonschema_rs.Validator] = {}

    def own(self, schema: Schema) -> OwnRules:
        if (own := self._own.get(id(schema))) is None:
            own = self._own[id(schema)] = self._compile(schema)
        return own

    def matches(self, pattern: str, key: str) -> bool:
        if pattern not in self._patterns:
            self._patterns[pattern] = self.checked.compiled({"pattern": pattern})
        return self._patterns[pattern].is_valid(key)

    def _compile(self, schema: Schema) -> OwnRules:
        rules = {keyword: schema[keyword] for keyword in OWN_RULES if keyword in schema}
        compiled = self.checked.compiled
        single = []
        for keyword, argument in rules.items():
            # Draft 4: `exclusiveMinimum: true` sharpens the `minimum` beside it.
            sharper = f"exclusive{keyword.capitalize()}" if keyword in ("minimum", "maximum") else ""
            if isinstance(argument, bool) and keyword.startswith("exclusive"):
                continue
            alone: Schema = {keyword: argument}
            if isinstance(rules.get(sharper), bool):
                alone[sharper] = rules[sharper]
                keyword = sharper if rules[sharper] else keyword
            single.append((keyword, argument, compiled(alone)))
        return OwnRules(compiled(rules), tuple(single), alone=schema.keys().isdisjoint(APPLYING))
