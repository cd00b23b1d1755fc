"""Changes to a ledger that wait for a tool's result, to be recorded with it or not at all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from perdure.sdk.journal_errors import LedgerConflict, LedgerError
from perdure.sdk.journal_json import Json
from perdure.sdk.ledger import LedgerForm, LedgerRecord
from perdure.sdk.pinned import check_values

T = TypeVar("T")

Change = Callable[[Any], Any]
"""Takes the typed value and returns the new one, or a dict of the fields to set."""


@dataclass(frozen=True, slots=True)
class SetFields:
    """Set these fields to these values; without `overwrite`, only if nobody else changed them since."""

    fields: Mapping[str, Json]
    overwrite: bool = False


@dataclass(frozen=True, slots=True)
class Apply:
    """Apply a function to whatever the value is by then."""

    change: Change


Step = SetFields | Apply


class LedgerEdit(Generic[T]):
    """`context.ledger`: the ledger as it was when the call began, and the changes this call wants.

    Nothing is recorded before the tool's result is, and both are recorded together. Safe for threads.
    """

    def __init__(self, record: LedgerRecord, form: LedgerForm[T]) -> None:
        self._base = record
        self._form = form
        self._steps: list[Step] = []
        self._value = dict(record.value)
        self._mutex = threading.Lock()

    @property
    def key(self) -> str:
        """The ledger's key."""
        return self._base.key

    @property
    def base(self) -> LedgerRecord:
        """The version that was read."""
        return self._base

    @property
    def form(self) -> LedgerForm[T]:
        """How values are typed."""
        return self._form

    @property
    def steps(self) -> tuple[Step, ...]:
        """The changes so far, in their order."""
        with self._mutex:
            return tuple(self._steps)

    @property
    def value(self) -> T:
        """The typed value, with the changes so far."""
        with self._mutex:
            return self._form.typed(dict(self._value))

    def update(self, change: Change | None = None, /, *, overwrite: bool = False, **fields: Any) -> T:
        """Set fields, or apply a function to the value; returns the new value.

        `update(status="paid")` conflicts with a call that changed `status` meanwhile, unless `overwrite`.
        `update(lambda ledger: {"count": ledger.count + 1})` never does: it is applied again to the newest
        value when the result is recorded, so it must be quick and depend on nothing else.

        Raises:
            LedgerInvalid: the new value does not fit the ledger's schema, or a pinned value is longer than
                512 characters; it stays as it was.
            LedgerError: there is neither a function nor a field, or both.
        """
        if (change is None) == (not fields):
            raise LedgerError("Give either a function or fields to update.")
        with self._mutex:
            step: Step
            if change is None:
                wanted = self._form.plain({**self._value, **fields})
                step = SetFields({name: wanted[name] for name in fields if name in wanted}, overwrite)
                new = wanted
            else:
                step = Apply(change)
                new = changed_by(change, self._value, self._form)
            check_values(self._base.pinned, new)
            self._value = new
            self._steps.append(step)
            return self._form.typed(dict(new))


def changed_by(change: Change, value: Mapping[str, Json], form: LedgerForm[Any]) -> dict[str, Json]:
    """The fields after a function was applied to them."""
    found = change(form.typed(dict(value)))
    if found is None:
        raise LedgerError("The function that changes a ledger returned None; return the new value or fields.")
    return form.plain({**value, **found} if isinstance(found, Mapping) else found)


def merged(
    edit: LedgerEdit[Any], newest: LedgerRecord, changed_since: Mapping[str, tuple[str, int]]
) -> dict[str, Json]:
    """The fields after an edit's changes were made to the newest version.

    `changed_since` has the fields that others changed after the edit's base, with who did and the version.

    Raises:
        LedgerConflict: a field to be set is one of them, and has another value than the wanted one.
        LedgerInvalid: the changes together do not fit the schema.
    """
    value = dict(newest.value)
    for step in edit.steps:
        match step:
            case SetFields(fields, overwrite):
                taken = [
                    name
                    for name, wanted in fields.items()
                    if name in changed_since and not overwrite and newest.value.get(name) != wanted
                ]
                if taken:
                    raise LedgerConflict(taken, *changed_since[taken[-1]])
                value = edit.form.plain({**value, **fields})
            case Apply(change):
                value = _applied_again(change, value, edit.form)
    return value


def _applied_again(change: Change, value: Mapping[str, Json], form: LedgerForm[Any]) -> dict[str, Json]:
    try:
        return changed_by(change, value, form)
    except LedgerError:
        raise
    except Exception as error:
        raise LedgerError(
            f"The function that changes the ledger raised {type(error).__name__} on its newest value."
        ) from error
