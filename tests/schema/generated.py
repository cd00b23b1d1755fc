"""Random JSON values and JSON Schemas for property tests, the same ones for the same seed."""

from __future__ import annotations

from random import Random
from typing import Any

Json = Any

DRAFTS = {
    4: "http://json-schema.org/draft-04/schema#",
    6: "http://json-schema.org/draft-06/schema#",
    7: "http://json-schema.org/draft-07/schema#",
    2019: "https://json-schema.org/draft/2019-09/schema",
    2020: "https://json-schema.org/draft/2020-12/schema",
}
NAMES = ("a", "b", "c", "kind", "a b", "$ref", "é")
SCALARS = (
    None,
    True,
    False,
    -2,
    0,
    1,
    2,
    3,
    0.0,
    1.0,
    1.5,
    -2.5,
    1e300,
    "",
    "a",
    "ab",
    "A-1042",
    "x" * 9,
    "é",
    "\n",
)
PATTERNS = ("a", "^a+$", "(a+)+$", r"^[A-Z]-\d{4}$", "^(?!a)", r"^(?=.*b)(?:a|b)*$", "^$")
TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")
REFERENCES = ("#", "#/$defs/x", "#/$defs/x", "#/$defs/y", "#/$defs/y", "#/properties/a")

_PARTS = ("properties", "items", "additionalProperties", "allOf", "anyOf", "oneOf", "not", "$ref", "required")
_RARE_PARTS = (
    "patternProperties",
    "additionalItems",
    "prefixItems",
    "contains",
    "propertyNames",
    "if",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
)
_RULES = (
    "type",
    "type",
    "type",
    "enum",
    "const",
    "pattern",
    "multipleOf",
    "minimum",
    "maximum",
    "exclusive",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
)


class Generator:
    """Draws from a seed. `year` is the draft's: 4, 6, 7, 2019 or 2020."""

    def __init__(self, seed: int, year: int = 2020) -> None:
        self.random = Random(seed)
        self.year = year

    def value(self, depth: int = 3) -> Json:
        match self.random.randrange(5 if depth else 3):
            case 3:
                return [self.value(depth - 1) for _ in range(self.random.randrange(4))]
            case 4:
                return self.object(depth - 1)
            case _:
                return self.random.choice(SCALARS)

    def object(self, depth: int = 3) -> dict[str, Json]:
        return {self.random.choice(NAMES): self.value(depth) for _ in range(self.random.randrange(4))}

    def schema(self) -> dict[str, Json]:
        """A schema that is valid in the draft and has an object root; a reference in it may lead nowhere."""
        root = self._part(4) if self.random.random() < 0.8 else {}
        return root | {
            "$schema": DRAFTS[self.year],
            "type": "object",
            "properties": {name: self._branch(3) for name in NAMES[: self.random.randrange(1, 5)]},
            "$defs": {"x": self._branch(3), "y": self._branch(3)},
        }

    def _branch(self, depth: int) -> Json:
        if self.year > 4 and self.random.random() < 0.1:
            return self.random.random() < 0.5
        return self._part(depth)

    def _part(self, depth: int) -> dict[str, Json]:
        schema: dict[str, Json] = {}
        for _ in range(self.random.randrange(3)):
            schema |= self._rule(self.random.choice(_RULES))
        for _ in range(self.random.randrange(3) if depth else 0):
            rare = self.random.random() < 0.35
            schema |= self._inner(self.random.choice(_RARE_PARTS if rare else _PARTS), depth - 1)
        return schema

    def _rule(self, keyword: str) -> dict[str, Json]:
        pick = self.random.choice
        match keyword:
            case "type" if self.random.random() < 0.3:
                return {"type": self.random.sample(TYPES, self.random.randrange(1, 4))}
            case "type":
                return {"type": pick(TYPES)}
            case "enum":
                return {
                    "enum": [self.random.choice(SCALARS[:8]), self.value(2)]
                    if self.random.random() < 0.5
                    else [1]
                }
            case "const":
                return {"const": self.value(2)}
            case "pattern":
                return {"pattern": pick(PATTERNS)}
            case "multipleOf":
                return {"multipleOf": pick((1, 2, 0.5))}
            case "minimum" | "maximum":
                return {keyword: pick((-1, 0, 1, 1.5))}
            case "exclusive" if self.year == 4:
                return {
                    "minimum": 1,
                    "exclusiveMinimum": pick((True, False)),
                    "maximum": 3,
                    "exclusiveMaximum": True,
                }
            case "exclusive":
                return {"exclusiveMinimum": pick((0, 1)), "exclusiveMaximum": pick((2, 3))}
            case "uniqueItems":
                return {"uniqueItems": pick((True, False))}
            case _:
                return {keyword: self.random.randrange(3)}

    def _inner(self, keyword: str, depth: int) -> dict[str, Json]:
        some = [self._branch(depth) for _ in range(self.random.randrange(1, 4))]
        required = self.random.sample(NAMES, self.random.randrange(1, 3))
        match keyword:
            case "allOf" | "anyOf" | "oneOf" | "prefixItems":
                return {keyword: some}
            case "properties" | "dependentSchemas":
                return {keyword: dict(zip(NAMES, some, strict=False))}
            case "patternProperties":
                return {keyword: dict(zip(self.random.sample(PATTERNS, 3), some, strict=False))}
            case "items" if self.year <= 2019 and self.random.random() < 0.5:
                return {"items": some, "additionalItems": some[0]}
            case "items" if self.year == 4:
                return {"items": self._part(depth)}
            case "required":
                return {"required": required}
            case "dependencies":
                return {keyword: {"a": required, "b": some[0]}}
            case "dependentRequired":
                return {keyword: {"a": required}}
            case "contains":
                counts = {"minContains": self.random.randrange(3), "maxContains": self.random.randrange(1, 4)}
                return {keyword: some[0]} | (counts if self.random.random() < 0.5 else {})
            case "if":
                return dict(zip(("if", "then", "else"), some, strict=False))
            case "$ref":
                return {keyword: self.random.choice(REFERENCES)}
            case "additionalProperties" if self.random.random() < 0.4:
                return {keyword: False}
            case _:
                return {keyword: some[0]}
