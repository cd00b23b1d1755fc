"""Ledgers: the application's own JSON for a session, the state that compaction must not hold.

    class OrderLedger(Ledger):
        order_id: Pinned[str]
        status: str = "new"

Any other schema form does as well: a dataclass, a TypedDict, a msgspec struct, an attrs class, a pydantic
model, or a dict with its JSON Schema. The journal stores a ledger beside the calls, with every version of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypedDict, TypeVar, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict

from perdure.schema import Failure, FormRefused, Schema, jsonable, schema_of
from perdure.sdk.journal_errors import LedgerError, LedgerInvalid
from perdure.sdk.journal_json import Json
from perdure.sdk.pinned import check_pinned

T = TypeVar("T")

LEDGER_METADATA = "perdure_ledger"
"""The name in a session's metadata under which the key of its ledger stands."""

BOOKKEEPING = ("session_id", "last_turn_id", "last_call_id", "awaiting", "compact_checkpoint")
"""What the SDK itself writes into every ledger; a ledger's own fields have other names."""


class Bookkeeping(TypedDict, total=False):
    """The bookkeeping fields that change while a session goes on."""

    last_turn_id: str | None
    last_call_id: str | None
    awaiting: str | None
    compact_checkpoint: str | None


@dataclass(frozen=True, slots=True)
class PinnedField:
    """Marks a field of a ledger, in `Annotated`, whose value is a pinned fact of the session."""


Pinned = Annotated[T, PinnedField()]
"""`order_id: Pinned[str]`: a value that the model must not lose.

It is kept through every compaction word for word: the SDK keeps the session's pinned facts in step with it.
As text it has at most 512 characters. None is no fact.
"""


class Ledger(BaseModel):
    """Base of typed ledgers. Values are frozen: a change is a new version, made with `update`."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """One version of a ledger, as plain data.

    `key` is the ledger's id, `session_id` None until the session is known. `value` holds the author's
    fields, `pinned` names those of them that the model is told again. `form` is the name of the schema.
    """

    key: str
    session_id: str | None
    version: int
    value: Mapping[str, Json]
    last_turn_id: str | None = None
    last_call_id: str | None = None
    awaiting: str | None = None
    compact_checkpoint: str | None = None
    pinned: tuple[str, ...] = ()
    form: str = ""

    def document(self) -> dict[str, Json]:
        """Bookkeeping and the author's fields as one flat object."""
        return {
            "session_id": self.session_id,
            **self.value,
            "last_turn_id": self.last_turn_id,
            "last_call_id": self.last_call_id,
            "awaiting": self.awaiting,
            "compact_checkpoint": self.compact_checkpoint,
        }


class LedgerForm(Generic[T]):
    """How the values of a ledger are typed: between the author's type and JSON, checked both ways."""

    def __init__(self, form: Any, pinned: Iterable[str] = ()) -> None:
        """Take any schema form.

        Raises:
            FormRefused, SchemaRefused: it is no schema of an object.
            LedgerError: it has a field of the bookkeeping's names, `pinned` names no field of it, or more
                fields are pinned, or longer names, than a session's metadata can hold.
        """
        self._schema: Schema[T] = _schema(form)
        self.name = self._schema.name
        self.fields = _fields(self._schema.author_schema)
        if taken := [name for name in BOOKKEEPING if name in self.fields]:
            raise LedgerError(
                f"{self.name} has the field {taken[0]}, which every ledger has already: the SDK keeps "
                f"{', '.join(BOOKKEEPING)}. Give yours another name."
            )
        self.pinned = tuple(dict.fromkeys((*_marked(form), *pinned)))
        if self.fields and (strange := [name for name in self.pinned if name not in self.fields]):
            raise LedgerError(f"{self.name} has no field {strange[0]} to be pinned.")
        check_pinned(self.name, self.pinned)

    @classmethod
    def of(cls, value: Any, form: Any = None, pinned: Iterable[str] = ()) -> LedgerForm[Any]:
        """The form of a value: its type, or what is given for a dict.

        Raises:
            LedgerError: the value is a dict, and what it is typed by was not said.
        """
        if form is None:
            if isinstance(value, Mapping):
                raise LedgerError("Say what a dict is typed by: give form=, a TypedDict or JSON Schema.")
            form = type(value)
        return LedgerForm(form, pinned)

    def typed(self, value: Json) -> T:
        """The author's type for stored fields.

        Raises:
            LedgerInvalid: they do not fit, because the form has changed since they were stored.
        """
        outcome = self._schema.validate(value)
        if isinstance(outcome, Failure):
            issues = [str(issue) for issue in outcome.issues]
            raise LedgerInvalid(f"The ledger does not fit {self.name}: {'; '.join(issues)}.", issues)
        return outcome.value

    def plain(self, value: Any) -> dict[str, Json]:
        """A typed value, or its fields, as JSON that fits the schema, with defaults filled in.

        Raises:
            LedgerInvalid: it does not fit.
        """
        dumped = value if isinstance(value, dict) else self._schema.dump(value)
        found = self._schema.dump(self.typed(jsonable(dumped)))
        if not isinstance(found, dict):
            raise LedgerInvalid(f"{self.name} is no object.", ["root: object"])
        if taken := [name for name in BOOKKEEPING if name in found]:
            raise LedgerInvalid(f"{taken[0]} is kept by the SDK.", [f"{taken[0]}: another name"])
        return found


def _schema(form: Any) -> Schema[Any]:
    if isinstance(form, Mapping):
        return schema_of(form, strict=False, validate=True)
    try:
        return schema_of(form, strict=False)
    except FormRefused:
        # A StandardSchema is always strict.
        return schema_of(form)


def _fields(schema: Mapping[str, Any]) -> frozenset[str]:
    """The names of an object's members, as far as its root lists them."""
    root: Any = schema
    reference = root.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/$defs/"):
        root = root.get("$defs", {}).get(reference.removeprefix("#/$defs/"), {})
    members = root.get("properties") if isinstance(root, Mapping) else None
    return frozenset(members) if isinstance(members, Mapping) else frozenset()


def _marked(form: Any) -> list[str]:
    if isinstance(form, type) and issubclass(form, BaseModel):
        # It has resolved its hints already, those that name a class inside of a function, too.
        fields = form.model_fields.items()
        return [name for name, field in fields if any(isinstance(m, PinnedField) for m in field.metadata)]
    try:
        hints = get_type_hints(form, include_extras=True)
    except (TypeError, NameError):
        return []
    return [
        name
        for name, hint in hints.items()
        if any(isinstance(extra, PinnedField) for extra in _annotations(hint))
    ]


def _annotations(hint: Any) -> Iterable[Any]:
    """What stands beside a type in `Annotated`, inside of `NotRequired` and the like, too."""
    yield from getattr(hint, "__metadata__", ())
    origin = getattr(hint, "__origin__", None)
    if origin is not None and getattr(hint, "__metadata__", None) is None:
        for inner in get_args(hint):
            yield from getattr(inner, "__metadata__", ())
