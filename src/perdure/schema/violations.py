"""Where and how a value breaks a schema, found by a walk that is bounded in every direction.

The compiled validator gives a verdict in microseconds, but its error reports copy the value, are collected
in full before the first is seen, and grow exponentially with nested alternatives. So the reasons are found
by this walk. It leaves every rule about a single value (types, ranges, patterns) to the compiled validator
and remembers its findings, so that it takes at most `STEPS` steps whatever the schema and the value are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from perdure.schema.dialects import Part
from perdure.schema.graph import Schema
from perdure.schema.rulebook import Rulebook
from perdure.schema.wording import broken_rule, one_of, quoted, type_names, unknown_property, wrong_type

STEPS = 100_000
FINDINGS = 20
# Each level takes up to five Python frames, of the 1,000 there are by default.
LEVELS = 100


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken rule: `path` from the walked value, `argument` what the schema gives under `keyword`."""

    path: tuple[Part, ...]
    keyword: str
    rule: str
    argument: object = None

    def below(self, part: Part) -> Finding:
        return Finding((part, *self.path), self.keyword, self.rule, self.argument)


class Exhausted(Exception):
    """The walk needs more steps or levels than it has."""


class Walk:
    """One search for what is wrong with one value. Use a new one for every value."""

    __slots__ = ("_book", "_dialect", "_graph", "_known", "_steps")

    def __init__(self, book: Rulebook, steps: int = STEPS) -> None:
        self._book = book
        self._graph = book.checked.graph
        self._dialect = book.checked.dialect
        self._known: dict[tuple[int, int], tuple[Finding, ...]] = {}
        self._steps = steps

    def findings(self, schema: object, value: object, level: int = 0) -> tuple[Finding, ...]:
        """At most `FINDINGS` broken rules, none if there are none. Raises Exhausted.

        `unevaluatedProperties` and `unevaluatedItems` are not looked at.
        """
        self._spend()
        if not isinstance(schema, dict):
            return () if schema is not False else (Finding((), "false", "is not allowed"),)
        if level > LEVELS:
            raise Exhausted
        key = id(schema), id(value)
        if (known := self._known.get(key)) is None:
            known = tuple(islice(self._search(schema, value, level), FINDINGS))
            self._known[key] = known
        return known

    def _spend(self) -> None:
        self._steps -= 1
        if self._steps < 0:
            raise Exhausted

    def _allows(self, schema: object, value: object, level: int) -> bool:
        return not self.findings(schema, value, level + 1)

    def _search(self, schema: Schema, value: object, level: int) -> Iterator[Finding]:
        for keyword in self._dialect.references:
            if (id(schema), keyword) in self._graph.targets:
                yield from self.findings(self._graph.targets[id(schema), keyword], value, level + 1)
        if self._dialect.reference_stands_alone and "$ref" in schema:
            return
        own = self._book.own(schema)
        if own is not None and not own.whole.is_valid(value):
            for keyword, argument, rule in own.single:
                if not rule.is_valid(value):
                    yield Finding((), keyword, broken_rule(keyword, argument, value), argument)
                    if keyword == "type":
                        return
        match value:
            case dict():
                yield from self._in_object(schema, value, level)
            case list():
                yield from self._in_array(schema, value, level)
        yield from self._in_combination(schema, value, level)

    def _get(self, schema: Schema, keyword: str) -> object:
        return schema.get(keyword) if self._dialect.means(keyword) else None

    def _in_object(self, schema: Schema, value: dict[str, object], level: int) -> Iterator[Finding]:
        for name in _texts(schema.get("required")):
            self._spend()
            if name not in value:
                yield Finding((name,), "required", "is required")
        for keyword in ("dependentRequired", "dependencies"):
            for name, needed in _pairs(self._get(schema, keyword)):
                for other in _texts(needed) if name in value else ():
                    self._spend()
                    if other not in value:
                        yield Finding((other,), keyword, f"is required beside {quoted(name, 80)}")
        for keyword in ("dependentSchemas", "dependencies"):
            for name, dependent in _pairs(self._get(schema, keyword)):
                if name in value and isinstance(dependent, dict | bool):
                    yield from self.findings(dependent, value, level + 1)
        properties = dict(_pairs(schema.get("properties")))
        patterns = list(_pairs(schema.get("patternProperties")))
        others = schema.get("additionalProperties")
        names = self._get(schema, "propertyNames")
        if not (properties or patterns or names is not None or others not in (None, True)):
            return
        for key, inner in value.items():
            self._spend()
            if names is not None and (reasons := self.findings(names, key, level + 1)):
                yield Finding((key,), "propertyNames", f"the property's name {reasons[0].rule}")
            applied = [properties[key]] if key in properties else []
            applied += [part for pattern, part in patterns if self._book.matches(pattern, key)]
            if not applied and others is False:
                yield Finding((key,), "additionalProperties", unknown_property(properties))
                continue
            for part in applied or [others]:
                yield from self._below(key, part, inner, level)

    def _below(self, part: Part, schema: object, value: object, level: int) -> Iterator[Finding]:
        if isinstance(schema, dict) or schema is False:
            for finding in self.findings(schema, value, level + 1):
                yield finding.below(part)

    def _in_array(self, schema: Schema, value: list[object], level: int) -> Iterator[Finding]:
        first, rest = self._get(schema, "prefixItems"), schema.get("items")
        if isinstance(rest, list):
            first, rest = rest, self._get(schema, "additionalItems")
        heads = first if isinstance(first, list) else []
        if heads or rest not in (None, True):
            for index, inner in enumerate(value):
                self._spend()
                part = heads[index] if index < len(heads) else rest
                yield from self._below(index, part, inner, level)
        if (wanted := self._get(schema, "contains")) is not None:
            found = sum(self._allows(wanted, inner, level) for inner in value)
            least, most = self._get(schema, "minContains"), self._get(schema, "maxContains")
            least = least if isinstance(least, int | float) else 1
            if found < least:
                yield Finding(
                    (), "contains", f"must contain at least {least} of the items that `contains` asks for"
                )
            if isinstance(most, int | float) and found > most:
                yield Finding(
                    (), "maxContains", f"must contain at most {most} of the items that `contains` asks for"
                )

    def _in_combination(self, schema: Schema, value: object, level: int) -> Iterator[Finding]:
        for part in _members(schema.get("allOf")):
            yield from self.findings(part, value, level + 1)
        branches = _members(schema.get("anyOf"))
        if branches and not any(self._allows(branch, value, level) for branch in branches):
            yield from self._closest("anyOf", branches, value, level)
        if branches := _members(schema.get("oneOf")):
            count = sum(self._allows(branch, value, level) for branch in branches)
            if count == 0:
                yield from self._closest("oneOf", branches, value, level)
            elif count > 1:
                yield Finding(
                    (), "oneOf", f"matches {count} of the {len(branches)} allowed forms, must match one"
                )
        if "not" in schema and self._allows(schema["not"], value, level):
            yield Finding((), "not", "matches a form that is not allowed")
        if (condition := self._get(schema, "if")) is not None:
            chosen = "then" if self._allows(condition, value, level) else "else"
            if chosen in schema:
                yield from self.findings(schema[chosen], value, level + 1)

    def _closest(self, keyword: str, branches: list[object], value: object, level: int) -> Iterator[Finding]:
        """What the one alternative wants that was meant, if the value tells; else what all of them want."""
        candidates = [self.findings(branch, value, level + 1) for branch in branches]
        meant = [found for found in candidates if not any(map(_tells_apart, found))]
        if len(meant) == 1:
            yield from meant[0]
        elif meant:
            yield Finding(
                (), keyword, f"matches none of the {len(branches)} allowed forms; the closest wants:"
            )
            yield from min(meant, key=len)
        else:
            yield _wanted(keyword, [next(filter(_tells_apart, found)) for found in candidates], value)


def _tells_apart(finding: Finding) -> bool:
    """Whether a broken rule shows that another alternative was meant: another type, another `kind`."""
    if finding.keyword in ("type", "false"):
        return not finding.path
    return finding.keyword in ("const", "enum") and len(finding.path) <= 1


def _wanted(keyword: str, findings: Sequence[Finding], value: object) -> Finding:
    """What alternatives that differ in type, or in one constant, allow together."""
    types = [name for found in findings if found.keyword == "type" for name in _listed(found.argument)]
    fixed = [found for found in findings if found.keyword in ("const", "enum")]
    paths = {found.path for found in fixed}
    if types and not fixed:
        return Finding((), "type", wrong_type(types, value), types)
    if len(paths) == 1:
        values = [
            v
            for found in fixed
            for v in ([found.argument] if found.keyword == "const" else _listed(found.argument))
        ]
        path = paths.pop()
        rule = one_of(values) + (f", or {type_names(types)}" if types and not path else "")
        return Finding(path, "enum", rule, values)
    return Finding((), keyword, f"matches none of the {len(findings)} allowed forms")


def _listed(argument: object) -> list[object]:
    return argument if isinstance(argument, list) else [argument]


def _texts(names: object) -> list[str]:
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _pairs(mapping: object) -> Iterable[tuple[str, object]]:
    return mapping.items() if isinstance(mapping, dict) else ()


def _members(schemas: object) -> list[object]:
    return schemas if isinstance(schemas, list) else []
