"""The way back from strict form: a null that stands for a key left out is taken out again."""

from __future__ import annotations

from perdure.schema.arguments import ArgumentValidator
from perdure.schema.bounds import CheckedSchema
from perdure.schema.graph import Schema
from perdure.schema.meaning import kind_of, tag
from perdure.schema.strict import StrictForm


class Restorer:
    """Turns values in strict form into values of the author's schema. Safe to share between threads."""

    __slots__ = ("_active", "_droppable", "_form", "_leaves", "_recognisers", "_tolerant")

    def __init__(self, form: StrictForm) -> None:
        self._form = form
        self._tolerant: StrictForm | None = None
        self._recognisers: dict[int, ArgumentValidator] = {}
        self._leaves: dict[int, list[Schema]] = {}
        self._droppable: dict[int, frozenset[str]] = {}
        self._active = self._find_active()

    def _find_active(self) -> frozenset[int]:
        """The schemas at or below which there may be something to take out, by identity."""
        above: dict[int, list[int]] = {}
        found: list[int] = []
        for schema, edges in self._form.author.graph.with_edges():
            if isinstance(properties := schema.get("properties"), dict) and id(schema) in self._form.parts:
                names = frozenset(name for name in properties if self._form.droppable(schema, name))
                if names:
                    self._droppable[id(schema)] = names
                    found.append(id(schema))
            for edge in edges:
                if edge.role != "stored":
                    above.setdefault(id(edge.target), []).append(id(schema))
        active: set[int] = set()
        while found:
            if (each := found.pop()) not in active:
                active.add(each)
                found += above.get(each, ())
        return frozenset(active)

    def restore(self, value: object) -> object:
        """The value without the nulls that the strict form added; the value itself is left as it is.

        A value that does not have the strict form is restored as far as it can be recognised.
        """
        holder: list[object] = [value]
        waiting: list[tuple[Schema | bool, object, dict[str, object] | list[object], str | int]] = [
            (self._form.author.root, value, holder, 0)
        ]
        while waiting:
            schema, inner, into, key = waiting.pop()
            if id(schema) not in self._active or (leaf := self._recognised(schema, inner)) is None:
                continue
            parts: list[tuple[Schema | bool, object, str | int]]
            copy: dict[str, object] | list[object]
            match inner:
                case dict():
                    gone = self._droppable.get(id(leaf), frozenset())
                    copy = {
                        name: member
                        for name, member in inner.items()
                        if not (member is None and name in gone)
                    }
                    parts = [
                        (part, copy[name], name)
                        for name, part in _mapping(leaf.get("properties")).items()
                        if name in copy
                    ]
                case list():
                    copy = list(inner)
                    heads = _members(leaf.get("prefixItems"))
                    rest = leaf.get("items", True)
                    parts = [
                        (heads[index] if index < len(heads) else _schema(rest), member, index)
                        for index, member in enumerate(inner)
                    ]
                case _:
                    continue
            into[key] = copy  # type: ignore[index]
            waiting += [
                (part, member, copy, at) for part, member, at in parts if isinstance(member, dict | list)
            ]
        return holder[0]

    def _recognised(self, schema: Schema | bool, value: object) -> Schema | None:
        """The alternative of a schema that a value is of, None if there is none with anything to restore."""
        if (leaves := self._leaves.get(id(schema))) is None:
            leaves = self._leaves[id(schema)] = self._form.meaning.leaves(schema)
        kind = kind_of(value)
        fitting = [leaf for leaf in leaves if kind in self._form.meaning.kinds(leaf)]
        if len(fitting) > 1:
            if not any(id(leaf) in self._active for leaf in fitting):
                return None
            # What matches the strict form of an alternative is restored to a value of that alternative.
            matching = (leaf for leaf in fitting if self._recogniser(leaf).allows(value))
            found = next(matching, None)
            if found is None and isinstance(value, dict):
                found = next((leaf for leaf in fitting if self._has_tags(leaf, value)), None)
            return found
        return fitting[0] if fitting else None

    def _has_tags(self, leaf: Schema, value: dict[str, object]) -> bool:
        tags = list(self._form.meaning.tags(leaf))
        return bool(tags) and all(name in value and tag(value[name]) in options for name, options in tags)

    def _recogniser(self, leaf: Schema) -> ArgumentValidator:
        if (known := self._recognisers.get(id(leaf))) is None:
            # A model may leave out what may be left out, although the strict form says otherwise.
            if self._tolerant is None:
                self._tolerant = StrictForm(self._form.author, every_key=False)
            document = self._tolerant.document(self._tolerant.parts[id(leaf)])
            known = self._recognisers[id(leaf)] = ArgumentValidator(CheckedSchema(document))
        return known


def _schema(value: object) -> Schema | bool:
    return value if isinstance(value, dict | bool) else True


def _mapping(value: object) -> dict[str, Schema | bool]:
    return value if isinstance(value, dict) else {}


def _members(value: object) -> list[Schema | bool]:
    return value if isinstance(value, list) else []
