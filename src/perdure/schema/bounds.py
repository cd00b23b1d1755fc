"""Which JSON Schemas are accepted: bounded ones, with an object at the root, that refer only to themselves.

Everything here is decided when a schema is given, so that no turn fails later because of it and no value
can make validation hang.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

import jsonschema_rs
import orjson

from perdure.schema.dialects import Dialect, Part, dialect_of
from perdure.schema.graph import Schema, SchemaGraph
from perdure.schema.patterns import Engine, engine_for
from perdure.schema.refusals import SchemaRefused
from perdure.schema.wording import broken_rule, printable, quoted, type_of

SCHEMA_BYTES = 256 << 10
DEPTH = 100
NODES = 20_000
UNEVALUATED_SPREAD = 200
# Above this, a value is checked by the bounded walk alone.
WEIGHT = 20_000

_ROOT_COMBINATORS = ("oneOf", "anyOf", "allOf", "enum", "not")


class CheckedSchema:
    """A schema that passed every check, with what validating against it needs. Built by `checked`.

    `validator` is None for a schema whose references fan out so much that only a bounded walk is safe.
    """

    __slots__ = ("dialect", "engine", "graph", "root", "validator")

    def __init__(self, root: Schema) -> None:
        self.root = root
        self.dialect = dialect_of(root)
        _refuse_invalid(root, self.dialect)
        self.graph = SchemaGraph.of(root, self.dialect)
        self.graph.refuse_circles()
        heavy = self.graph.weight() > WEIGHT
        if self.graph.unevaluated and (heavy or self.graph.spread() > UNEVALUATED_SPREAD):
            at = self.graph.paths[id(self.graph.unevaluated[0])]
            raise SchemaRefused(at, "combines unevaluated properties or items with too many references")
        self.engine: Engine = engine_for(self.graph.patterns)
        self.validator = None if heavy else self.compiled(root)

    def compiled(self, schema: Schema) -> jsonschema_rs.Validator:
        """A validator of one schema in this one's dialect. Formats are annotations: they reject nothing."""
        # The root's own identity is dropped: with one, `#` could mean another document of that name.
        plain = {
            key: value for key, value in schema.items() if key not in ("$schema", self.dialect.id_keyword)
        }
        try:
            return self.dialect.validator(
                plain, validate_formats=False, pattern_options=self.engine, offline=True
            )
        except jsonschema_rs.ValidationError as error:
            raise _refusal(error, self.dialect) from None


def check_schema(schema: Mapping[str, object], *, what: str = "schema", plain_root: bool = False) -> None:
    """Accepts a user's JSON Schema for function parameters or an output format, or raises SchemaRefused.

    It must be valid in its draft (`$schema`, else 2020-12), describe an object at the root (`type: object`,
    no `type`, or a `$ref` to such a schema), refer only to itself, and stay within `SCHEMA_BYTES` of JSON,
    `DEPTH` levels and `NODES` values. `plain_root` also refuses oneOf, anyOf, allOf, enum and not at the
    root. `what` names the schema in the message.
    """
    try:
        _refuse_unbounded(schema)
        root = checked(schema_text(schema)).root
        if plain_root and (found := next((key for key in _ROOT_COMBINATORS if key in root), None)):
            raise SchemaRefused((found,), f"{found} is not supported at the root; put it into a property")
    except SchemaRefused as refused:
        raise refused.within(what) from None


def schema_text(schema: Mapping[str, object]) -> bytes:
    """A schema as JSON text. Raises SchemaRefused where it is not JSON."""
    try:
        return orjson.dumps(dict(schema))
    except (TypeError, ValueError) as error:
        _refuse_unbounded(schema)
        raise SchemaRefused((), f"is not JSON: {printable(str(error))}") from None


@lru_cache(maxsize=128)
def checked(text: bytes) -> CheckedSchema:
    """The checked schema of a JSON text. Raises SchemaRefused. Recent ones are remembered."""
    if len(text) > SCHEMA_BYTES:
        raise SchemaRefused((), f"is larger than {SCHEMA_BYTES >> 10} KiB of JSON")
    root = orjson.loads(text)
    _refuse_unbounded(root)
    schema = CheckedSchema(root)
    _refuse_other_roots(schema.root, schema.graph)
    return schema


def _refuse_unbounded(schema: Mapping[str, object]) -> None:
    if not isinstance(schema, Mapping):
        raise SchemaRefused((), f"must be an object, got {type_of(schema)}")
    stack: list[tuple[object, tuple[Part, ...]]] = [(dict(schema), ())]
    nodes = 0
    while stack:
        value, path = stack.pop()
        nodes += 1
        if nodes > NODES:
            raise SchemaRefused((), f"has more than {NODES:,} values")
        match value:
            case dict() | list() if len(path) >= DEPTH:
                raise SchemaRefused(path, f"is nested deeper than {DEPTH} levels")
            case dict():
                if len(value) > NODES:
                    raise SchemaRefused(path, f"has more than {NODES:,} values")
                for key, inner in reversed(value.items()):
                    if not isinstance(key, str):
                        raise SchemaRefused(path, "has a key that is not a string")
                    _refuse_broken_text(key, path)
                    stack.append((inner, (*path, key)))
            case list():
                if len(value) > NODES:
                    raise SchemaRefused(path, f"has more than {NODES:,} values")
                stack.extend((inner, (*path, index)) for index, inner in reversed(list(enumerate(value))))
            case str():
                _refuse_broken_text(value, path)
            case None | bool():
                pass
            case int() if not -(1 << 63) <= value < 1 << 64:
                raise SchemaRefused(path, "is a number of more than 64 bits")
            case int():
                pass
            case float() if math.isfinite(value):
                pass
            case _:
                raise SchemaRefused(path, "is not a JSON value")


def _refuse_broken_text(text: str, path: tuple[Part, ...]) -> None:
    if len(text) > SCHEMA_BYTES:
        raise SchemaRefused(path, f"is larger than {SCHEMA_BYTES >> 10} KiB of JSON")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise SchemaRefused(path, "contains text that is not valid Unicode") from None


def _refuse_invalid(root: Schema, dialect: Dialect) -> None:
    try:
        jsonschema_rs.meta.validate({**root, "$schema": dialect.uri})
    except jsonschema_rs.ValidationError as error:
        raise _refusal(error, dialect) from None


def _refusal(error: jsonschema_rs.ValidationError, dialect: Dialect) -> SchemaRefused:
    path = tuple(error.instance_path)
    kind = error.kind
    argument = kind.as_dict()
    if kind.name == "type" and isinstance(types := argument.get("types"), list):
        return SchemaRefused(
            path, f"is not valid in {dialect.name}: {broken_rule('type', types, type_of(error.instance))}"
        )
    if kind.name == "enum" and isinstance(options := argument.get("options"), list):
        return SchemaRefused(path, f"is not valid in {dialect.name}: {broken_rule('enum', options)}")
    if path and path[-1] == "type":
        return SchemaRefused(path, f"{quoted(error.instance, 80)} is not a type of JSON Schema")
    return SchemaRefused(path, f"is not valid in {dialect.name}: {printable(error.message)}")


def _refuse_other_roots(root: Schema, graph: SchemaGraph) -> None:
    schema: Schema | bool = root
    path: tuple[Part, ...] = ()
    while isinstance(schema, dict) and (id(schema), "$ref") in graph.targets:
        if "type" in schema and not graph.dialect.reference_stands_alone:
            break
        schema = graph.targets[id(schema), "$ref"]
        path = graph.paths[id(schema)] if isinstance(schema, dict) else ("$ref",)
    if isinstance(schema, dict):
        if schema.get("type", "object") != "object":
            raise SchemaRefused(
                (*path, "type"),
                f'must be "object" at the root, not {quoted(schema["type"], 80)}; '
                "wrap other values in a property",
            )
    elif not schema:
        raise SchemaRefused(path, "allows no value at all")
