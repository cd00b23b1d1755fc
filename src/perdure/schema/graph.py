"""A schema as a graph: its parts, where its references lead, and what that may cost.

Validation of a small value takes exponential time, or never ends, when references fan out or run in a
circle without descending into the value. Both are visible in the graph before anything is validated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from urllib.parse import unquote

from perdure.schema.dialects import Dialect, Part, Role
from perdure.schema.refusals import SchemaRefused
from perdure.schema.wording import quoted

Schema = dict[str, object]

SLOW_OPTIONS = 50


@dataclass(frozen=True, slots=True)
class Edge:
    """From a schema to one inside it, or to one that it refers to."""

    role: Role
    keyword: str
    target: Schema | bool


@dataclass(slots=True)
class SchemaGraph:
    """Every reachable schema of a document, by identity: the document is a tree parsed from text.

    `paths` tells where each is, `targets` what the reference under (schema, keyword) leads to, `patterns`
    where each regular expression was first met, `unevaluated` which schemas use `unevaluated…`.
    """

    root: Schema
    dialect: Dialect
    edges: dict[int, list[Edge]] = field(default_factory=dict)
    paths: dict[int, tuple[Part, ...]] = field(default_factory=dict)
    targets: dict[tuple[int, str], Schema | bool] = field(default_factory=dict)
    patterns: dict[str, tuple[Part, ...]] = field(default_factory=dict)
    unevaluated: list[Schema] = field(default_factory=list)
    _nodes: dict[int, Schema] = field(default_factory=dict)
    _anchors: dict[str, Schema] = field(default_factory=dict)

    @classmethod
    def of(cls, root: Schema, dialect: Dialect) -> SchemaGraph:
        """Builds the graph. Raises SchemaRefused for a reference that leads nowhere or outside."""
        graph = cls(root, dialect)
        found: list[tuple[Schema, tuple[Part, ...]]] = [(root, ())]
        while found:
            references = list(graph._explore(found))
            found = []
            for schema, keyword, reference in references:
                target, path = graph._resolve(reference, graph.paths[id(schema)] + (keyword,))
                graph.targets[id(schema), keyword] = target
                graph.edges[id(schema)].append(Edge("same", keyword, target))
                if isinstance(target, dict) and id(target) not in graph.edges:
                    found.append((target, path))
        return graph

    def _explore(self, found: list[tuple[Schema, tuple[Part, ...]]]) -> Iterator[tuple[Schema, str, str]]:
        """Walks down from `found`, yielding each reference met as (schema, keyword, reference)."""
        stack = list(reversed(found))
        while stack:
            schema, path = stack.pop()
            if id(schema) in self.edges:
                continue
            self._nodes[id(schema)] = schema
            self.paths[id(schema)] = path
            self._note(schema, path)
            edges = self.edges[id(schema)] = []
            inside = []
            for role, step, inner in self.dialect.branches(schema):
                edges.append(Edge(role, str(step[0]), inner))
                if isinstance(inner, dict):
                    inside.append((inner, path + step))
            stack += reversed(inside)
            for keyword in self.dialect.references:
                if isinstance(reference := schema.get(keyword), str):
                    yield schema, keyword, reference

    def _note(self, schema: Schema, path: tuple[Part, ...]) -> None:
        if path:
            identity = schema.get(self.dialect.id_keyword)
            local = self.dialect.year <= 7 and isinstance(identity, str) and identity.startswith("#")
            if isinstance(identity, str) and not local:
                # Also a matter of safety: embedded resources can make the validator allocate without bound.
                raise SchemaRefused(
                    (*path, self.dialect.id_keyword),
                    "an identifier inside a schema is not supported; use $defs",
                )
        for keyword, name in self.dialect.anchors(schema):
            if self._anchors.setdefault(name, schema) is not schema:
                raise SchemaRefused((*path, keyword), f"the anchor {quoted(name, 80)} is defined twice")
        if isinstance(pattern := schema.get("pattern"), str):
            self.patterns.setdefault(pattern, (*path, "pattern"))
        if isinstance(by_pattern := schema.get("patternProperties"), dict):
            for pattern in by_pattern:
                self.patterns.setdefault(pattern, (*path, "patternProperties", pattern))
        self._refuse_slow_options(schema.get("enum"), (*path, "enum"))
        if self.dialect.year >= 2019 and schema.keys() & {"unevaluatedProperties", "unevaluatedItems"}:
            self.unevaluated.append(schema)

    def _refuse_slow_options(self, options: object, at: tuple[Part, ...]) -> None:
        # The validator looks strings and integers up, and compares with everything else one by one.
        slow = (
            sum(isinstance(option, dict | list | float) for option in options)
            if isinstance(options, list)
            else 0
        )
        if slow > SLOW_OPTIONS:
            raise SchemaRefused(
                at, f"has more than {SLOW_OPTIONS} options that are objects, arrays or fractions"
            )

    def _resolve(self, reference: str, at: tuple[Part, ...]) -> tuple[Schema | bool, tuple[Part, ...]]:
        shown = quoted(reference, 80)
        if not reference.startswith("#"):
            raise SchemaRefused(at, f"the reference {shown} leaves this schema; only `#…` is followed")
        fragment = unquote(reference[1:])
        target: object = self.root
        path: list[Part] = []
        if fragment and not fragment.startswith("/"):
            if (anchored := self._anchors.get(fragment)) is None:
                raise SchemaRefused(at, f"the reference {shown} leads nowhere")
            return anchored, self.paths[id(anchored)]
        for step in fragment.split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(target, dict) and key in target:
                path.append(key)
                target = target[key]
            elif isinstance(target, list) and key.isascii() and key.isdigit() and int(key) < len(target):
                path.append(int(key))
                target = target[int(key)]
            else:
                raise SchemaRefused(at, f"the reference {shown} leads nowhere")
        if not isinstance(target, dict | bool):
            raise SchemaRefused(at, f"the reference {shown} does not lead to a schema")
        return target, tuple(path)

    def with_edges(self) -> Iterator[tuple[Schema, list[Edge]]]:
        """Every reachable schema, with where it leads."""
        for identity, schema in self._nodes.items():
            yield schema, self.edges[identity]

    def refuse_circles(self) -> None:
        """Raises SchemaRefused when a schema applies itself to the same value, which would never end."""
        for _ in self._finished(lambda edge: edge.role == "same", endless=True):
            pass

    def spread(self) -> int:
        """How many schemas at most look at a value for one with `unevaluated…`, that one included."""
        sizes: dict[int, int] = {}
        for schema in self._finished(lambda edge: edge.role == "same"):
            inner = (sizes.get(id(edge.target), 1) for edge in self.edges[id(schema)] if edge.role == "same")
            sizes[id(schema)] = _bounded(1 + sum(inner))
        return max((sizes[id(schema)] for schema in self.unevaluated), default=0)

    def weight(self) -> int:
        """How often one value may be looked at, at worst.

        A schema met again on the way to itself counts once, because the validator remembers its verdicts
        on those. Which one that is depends on the order of the walk, so the worse of two orders counts.
        """
        return max(self._weight(backwards=False), self._weight(backwards=True))

    def _weight(self, *, backwards: bool) -> int:
        weights: dict[int, int] = {}
        for schema in self._finished(lambda edge: edge.role != "stored", backwards=backwards):
            same, parts = 1, dict[str, int]()
            for edge in self.edges[id(schema)]:
                weight = weights.get(id(edge.target), 1)
                if edge.role == "same":
                    same += weight
                elif edge.role == "child":
                    parts[edge.keyword] = max(weight, parts.get(edge.keyword, 0))
            weights[id(schema)] = _bounded(same + sum(parts.values()))
        return weights.get(id(self.root), 1)

    def _finished(
        self, follow: Callable[[Edge], bool], *, backwards: bool = False, endless: bool = False
    ) -> Iterator[Schema]:
        """Every schema after those that it leads to, except where a circle makes that impossible."""
        entered: set[int] = set()
        done: set[int] = set()
        for start in self._nodes.values():
            if id(start) in entered:
                continue
            entered.add(id(start))
            stack = [(start, self._follow(start, follow, backwards))]
            while stack:
                schema, edges = stack[-1]
                for edge in edges:
                    if not isinstance(edge.target, dict) or id(edge.target) in done:
                        continue
                    if id(edge.target) not in entered:
                        entered.add(id(edge.target))
                        stack.append((edge.target, self._follow(edge.target, follow, backwards)))
                        break
                    if endless:
                        raise SchemaRefused(
                            self.paths[id(schema)], "applies itself to the same value without end"
                        )
                else:
                    done.add(id(schema))
                    stack.pop()
                    yield schema

    def _follow(self, schema: Schema, follow: Callable[[Edge], bool], backwards: bool) -> Iterator[Edge]:
        edges: Iterable[Edge] = self.edges[id(schema)]
        return filter(follow, reversed(list(edges)) if backwards else edges)


def _bounded(number: int) -> int:
    return min(number, 1 << 40)
