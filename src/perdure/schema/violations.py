"""Where and how a value breaks a schema, found by a walk that is bounded in every direction.

The compiled validator gives a verdict in microseconds, but its error reports copy the value, are collected
in full before the first is seen, and grow exponentially with nested alternatives. So the reasons are found
by this walk. It leaves every rule about a single value (types, ranges, patterns) to the compiled validator
and remembers its findings, so that it takes at most `STEPS` steps whatever the schema and the value are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from perdure.schema.dialects import Part
from perdure.schema.graph import Schema
from perdure.schema.rulebook import OwnRules, Rulebook
from perdure.schema.wording import broken_rule, type_of

STEPS = 100_000
COMPOUND_STEPS = 5
FINDINGS = 20
# Each level takes up to five Python frames, of the 1,000 there are by default.
LEVELS = 100


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken rule: `path` from the walked value, `argument` what the schema gives under `keyword`.

    For `additionalProperties` the argument is the known properties, for `dependentRequired` the property that
    needs this one, for anyOf and oneOf the number of alternatives, for `propertyNames` the name's finding.
    The words are only made for the findings that are shown: a constant may be large.
    """

    path: tuple[Part, ...]
    keyword: str
    argument: object = None
    got: str = ""

    @property
    def rule(self) -> str:
        if isinstance(self.argument, Finding):
            return f"the property's name {self.argument.rule}"
        return broken_rule(self.keyword, self.argument, self.got)

    def below(self, part: Part) -> Finding:
        return Finding((part, *self.path), self.keyword, self.argument, self.got)


Findings = tuple[Finding, ...]


class Exhausted(Exception):
    """The walk needs more steps or levels than it has."""


class Walk:
    """One search for what is wrong with one value. Use a new one for every value."""

    __slots__ = ("_book", "_dialect", "_graph", "_known", "_steps")

    def __init__(self, book: Rulebook, steps: int = STEPS) -> None:
        self._book = book
        self._graph = book.checked.graph
        self._dialect = book.checked.dialect
        self._known: dict[tuple[int, int, int], Findings] = {}
        self._steps = steps

    def findings(self, schema: object, value: object, level: int = 0, most: int = FINDINGS) -> Findings:
        """At most `most` broken rules, none if there are none. Raises Exhausted.

        `unevaluatedProperties` and `unevaluatedItems` are not looked at.
        """
        self._spend()
        if not isinstance(schema, dict):
            return () if schema is not False else (Finding((), "false"),)
        own = self._book.own(schema)
        if own.alone and own.whole.is_valid(value):
            return ()
        self._spend(COMPOUND_STEPS)
        if level > LEVELS:
            raise Exhausted
        key = id(schema), id(value), most
        if (known := self._known.get(key)) is None:
            known = self._known[key] = tuple(islice(self._search(schema, own, value, level, most), most))
        return known

    def _spend(self, steps: int = 1) -> None:
        self._steps -= steps
        if self._steps < 0:
            raise Exhausted

    def _allows(self, schema: object, value: object, level: int) -> bool:
        return not self.findings(schema, value, level + 1, most=1)

    def _search(
        self, schema: Schema, own: OwnRules, value: object, level: int, most: int
    ) -> Iterator[Finding]:
        for keyword in self._dialect.references:
            if (id(schema), keyword) in self._graph.targets:
                target = self._graph.targets[id(schema), keyword]
                yield from self.findings(target, value, level + 1, most)
        if self._dialect.reference_stands_alone and "$ref" in schema:
            return
        if not own.whole.is_valid(value):
            for keyword, argument, rule in own.single:
                if not rule.is_valid(value):
                    yield Finding((), keyword, argument, _found(value, argument))
                    if keyword == "type":
                        return
        match value:
            case dict():
                yield from self._in_object(schema, value, level, most)
            case list():
                yield from self._in_array(schema, value, level, most)
        yield from self._in_combination(schema, value, level, most)

    def _get(self, schema: Schema, keyword: str) -> object:
        inner = schema.get(keyword)
        return inner if inner is not None and self._dialect.means(keyword) else None

    def _in_object(
        self, schema: Schema, value: dict[str, object], level: int, most: int
    ) -> Iterator[Finding]:
        for name in _texts(schema.get("required")):
            self._spend()
            if name not in value:
                yield Finding((name,), "required")
        for keyword in ("dependentRequired", "dependencies"):
            for name, needed in _mapping(self._get(schema, keyword)).items():
                self._spend()
                for other in _texts(needed) if name in value else ():
                    self._spend()
                    if other not in value:
                        yield Finding((other,), "dependentRequired", name)
        for keyword in ("dependentSchemas", "dependencies"):
            for name, dependent in _mapping(self._get(schema, keyword)).items():
                self._spend()
                if name in value and isinstance(dependent, dict | bool):
                    yield from self.findings(dependent, value, level + 1, most)
        properties = _mapping(schema.get("properties"))
        patterns = _mapping(schema.get("patternProperties"))
        others = schema.get("additionalProperties")
        names = self._get(schema, "propertyNames")
        if not (properties or patterns or names is not None or others not in (None, True)):
            return
        if most == 1:
            yield from self._simple_first(properties, value, level)
        for key, inner in value.items():
            self._spend(1 + len(patterns))
            if names is not None and (reasons := self.findings(names, key, level + 1, most)):
                yield Finding((key,), "propertyNames", reasons[0])
            applied = [properties[key]] if key in properties else []
            applied += [part for pattern, part in patterns.items() if self._book.matches(pattern, key)]
            if not applied and others is False:
                yield Finding((key,), "additionalProperties", properties)
                continue
            for part in applied or [others]:
                yield from self._below(key, part, inner, level, most)

    def _simple_first(
        self, properties: Mapping[str, object], value: dict[str, object], level: int
    ) -> Iterator[Finding]:
        """Where one finding is enough, a wrong `kind` spares the look into everything beside it."""
        for key, inner in value.items():
            self._spend()
            part = properties.get(key)
            if isinstance(part, dict) and self._book.own(part).alone:
                yield from self._below(key, part, inner, level, 1)

    def _below(self, part: Part, schema: object, value: object, level: int, most: int) -> Iterator[Finding]:
        if isinstance(schema, dict) or schema is False:
            found = self.findings(schema, value, level + 1, most)
            self._spend(len(found))
            for finding in found:
                yield finding.below(part)

    def _in_array(self, schema: Schema, value: list[object], level: int, most: int) -> Iterator[Finding]:
        first, rest = self._get(schema, "prefixItems"), schema.get("items")
        if isinstance(rest, list):
            first, rest = rest, self._get(schema, "additionalItems")
        heads = _members(first)
        if heads or rest not in (None, True):
            for index, inner in enumerate(value):
                self._spend()
                part = heads[index] if index < len(heads) else rest
                yield from self._below(index, part, inner, level, most)
        if (wanted := self._get(schema, "contains")) is not None:
            count = sum(self._allows(wanted, inner, level) for inner in value)
            least, limit = self._get(schema, "minContains"), self._get(schema, "maxContains")
            least = least if isinstance(least, int | float) else 1
            if count < least:
                yield Finding((), "contains", least)
            if isinstance(limit, int | float) and count > limit:
                yield Finding((), "maxContains", limit)

    def _in_combination(self, schema: Schema, value: object, level: int, most: int) -> Iterator[Finding]:
        for part in _members(schema.get("allOf")):
            yield from self.findings(part, value, level + 1, most)
        branches = _members(schema.get("anyOf"))
        if branches and not any(self._allows(branch, value, level) for branch in branches):
            yield from self._closest(branches, value, level, most)
        if branches := _members(schema.get("oneOf")):
            count = sum(self._allows(branch, value, level) for branch in branches)
            if count == 0:
                yield from self._closest(branches, value, level, most)
            elif count > 1:
                yield Finding((), "oneOf", len(branches))
        if "not" in schema and self._allows(schema["not"], value, level):
            yield Finding((), "not")
        if (condition := self._get(schema, "if")) is not None:
            chosen = "then" if self._allows(condition, value, level) else "else"
            if chosen in schema:
                yield from self.findings(schema[chosen], value, level + 1, most)

    def _closest(self, branches: list[object], value: object, level: int, most: int) -> Iterator[Finding]:
        """What the one alternative wants that was meant, if the value tells; else what all of them want."""
        if most == 1:
            yield Finding((), "anyOf", len(branches))
            return
        candidates = [self.findings(branch, value, level + 1, most) for branch in branches]
        self._spend(sum(map(len, candidates)))
        meant = [found for found in candidates if not any(map(_tells_apart, found))]
        if len(meant) == 1:
            yield from meant[0]
        elif meant:
            yield Finding((), "anyOf", len(branches))
            yield from min(meant, key=len)
        else:
            apart = [next(filter(_tells_apart, found)) for found in candidates]
            self._spend(sum(len(_listed(finding.argument)) for finding in apart))
            yield _wanted(apart, value)


def _tells_apart(finding: Finding) -> bool:
    """Whether a broken rule shows that another alternative was meant: another type, another `kind`."""
    if finding.keyword in ("type", "false"):
        return not finding.path
    return finding.keyword in ("const", "enum", "enum or type") and len(finding.path) <= 1


def _wanted(findings: Sequence[Finding], value: object) -> Finding:
    """What alternatives that differ in type, or in one constant, allow together."""
    types: list[object] = []
    options: list[object] = []
    paths = set()
    for finding in findings:
        match finding:
            case Finding(keyword="type", argument=argument):
                types += _listed(argument)
            case Finding(keyword="const", argument=argument, path=path):
                options.append(argument)
                paths.add(path)
            case Finding(keyword="enum", argument=list() as members, path=path):
                options += members
                paths.add(path)
            case Finding(keyword="enum or type", argument=(list() as members, list() as names), path=path):
                options += members
                types += names if not path else []
                paths.add(path)
    if types and not options:
        return Finding((), "type", types, _found(value, types))
    if len(paths) != 1:
        return Finding((), "anyOf", len(findings))
    path = paths.pop()
    return (
        Finding(path, "enum", options)
        if path or not types
        else Finding(path, "enum or type", (options, types))
    )


def _found(value: object, allowed: object) -> str:
    fraction = isinstance(value, float) and "integer" in _listed(allowed)
    return "a number with a fraction" if fraction else type_of(value)


def _listed(argument: object) -> list[object]:
    return argument if isinstance(argument, list) else [argument]


def _texts(names: object) -> list[str]:
    return names if isinstance(names, list) else []


def _mapping(inner: object) -> Mapping[str, object]:
    return inner if isinstance(inner, dict) else {}


def _members(schemas: object) -> list[object]:
    return schemas if isinstance(schemas, list) else []
