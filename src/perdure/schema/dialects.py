"""The drafts of JSON Schema: which keyword means what in which of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import jsonschema_rs

from perdure.schema.refusals import SchemaRefused
from perdure.schema.wording import listed, quoted

Part = str | int
# `same` looks at the same value as its parent, `child` at a part of it, `stored` at nothing by itself.
Role = Literal["same", "child", "stored"]


@dataclass(frozen=True, slots=True)
class Dialect:
    """One draft. `year` orders them: 4, 6, 7, 2019, 2020."""

    name: str
    year: int
    uri: str
    validator: type[jsonschema_rs.Validator]

    @property
    def references(self) -> tuple[str, ...]:
        """The keywords that point to another schema."""
        match self.year:
            case 2019:
                return ("$ref", "$recursiveRef")
            case 2020:
                return ("$ref", "$dynamicRef")
            case _:
                return ("$ref",)

    @property
    def reference_stands_alone(self) -> bool:
        """Whether `$ref` makes every keyword beside it meaningless."""
        return self.year <= 7

    @property
    def id_keyword(self) -> str:
        return "id" if self.year == 4 else "$id"

    def anchors(self, schema: Mapping[str, object]) -> Iterator[tuple[str, str]]:
        """The names by which a `#name` reference finds this schema, with the keyword that gives each."""
        keywords = {2019: ("$anchor",), 2020: ("$anchor", "$dynamicAnchor")}.get(self.year, ())
        for keyword in keywords:
            if isinstance(name := schema.get(keyword), str):
                yield keyword, name
        name = schema.get(self.id_keyword)
        if self.year <= 7 and isinstance(name, str) and name.startswith("#"):
            yield self.id_keyword, name[1:]

    def means(self, keyword: str) -> bool:
        """Whether this draft gives the keyword a meaning."""
        since, until = _LIFETIME.get(keyword, (4, 2020))
        return since <= self.year <= until

    def branches(
        self, schema: Mapping[str, object]
    ) -> Iterator[tuple[Role, tuple[Part, ...], dict[str, object] | bool]]:
        """The schemas directly inside a schema, with the path to each; references are not followed.

        Whatever does not have the shape of a schema is passed over.
        """
        alone = self.reference_stands_alone and "$ref" in schema
        for keyword, inner in schema.items():
            role = _ROLES.get(keyword)
            if role is None or not self.means(keyword) or (alone and role != "stored"):
                continue
            match inner:
                case list() if keyword in _LISTS:
                    members: Iterator[tuple[tuple[Part, ...], object]] = (
                        ((keyword, index), member) for index, member in enumerate(inner)
                    )
                case dict() if keyword in _MAPS:
                    members = (((keyword, name), member) for name, member in inner.items())
                case dict() | bool() if keyword not in _LISTS or keyword == "items":
                    members = iter([((keyword,), inner)])
                case _:
                    continue
            for path, member in members:
                if isinstance(member, dict | bool):
                    yield role, path, member


_ROLES: dict[str, Role] = {
    "allOf": "same",
    "anyOf": "same",
    "oneOf": "same",
    "not": "same",
    "if": "same",
    "then": "same",
    "else": "same",
    "dependentSchemas": "same",
    "dependencies": "same",
    "properties": "child",
    "patternProperties": "child",
    "additionalProperties": "child",
    "propertyNames": "child",
    "unevaluatedProperties": "child",
    "items": "child",
    "prefixItems": "child",
    "additionalItems": "child",
    "contains": "child",
    "unevaluatedItems": "child",
    "$defs": "stored",
    "definitions": "stored",
}
# The keywords with which a schema is more than rules about one value.
APPLYING = frozenset(_ROLES) | {"$ref", "$recursiveRef", "$dynamicRef", "required", "dependentRequired"}
_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems", "items"})
_MAPS = frozenset(
    {"properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"}
)
_LIFETIME = {
    "const": (6, 2020),
    "contains": (6, 2020),
    "propertyNames": (6, 2020),
    "if": (7, 2020),
    "then": (7, 2020),
    "else": (7, 2020),
    "dependentRequired": (2019, 2020),
    "dependentSchemas": (2019, 2020),
    "minContains": (2019, 2020),
    "maxContains": (2019, 2020),
    "unevaluatedProperties": (2019, 2020),
    "unevaluatedItems": (2019, 2020),
    "prefixItems": (2020, 2020),
    "additionalItems": (4, 2019),
}

DRAFT_2020 = Dialect(
    "draft 2020-12",
    2020,
    "https://json-schema.org/draft/2020-12/schema",
    jsonschema_rs.Draft202012Validator,
)
_DIALECTS = (
    Dialect("draft 4", 4, "http://json-schema.org/draft-04/schema#", jsonschema_rs.Draft4Validator),
    Dialect("draft 6", 6, "http://json-schema.org/draft-06/schema#", jsonschema_rs.Draft6Validator),
    Dialect("draft 7", 7, "http://json-schema.org/draft-07/schema#", jsonschema_rs.Draft7Validator),
    Dialect(
        "draft 2019-09",
        2019,
        "https://json-schema.org/draft/2019-09/schema",
        jsonschema_rs.Draft201909Validator,
    ),
    DRAFT_2020,
)
_BY_NAME = {dialect.uri.rstrip("#").split("://")[1]: dialect for dialect in _DIALECTS}


def dialect_of(schema: Mapping[str, object]) -> Dialect:
    """The draft that `$schema` names, 2020-12 without one. Raises SchemaRefused for an unknown one."""
    match schema.get("$schema"):
        case None if "$schema" not in schema:
            return DRAFT_2020
        case str() as uri if known := _BY_NAME.get(uri.rstrip("#").split("://")[-1]):
            return known
        case other:
            supported = listed([dialect.uri for dialect in _DIALECTS], len(_DIALECTS))
            raise SchemaRefused(("$schema",), f"{quoted(other, 80)} is not one of {supported}")
