"""Adapters of other packages, found by entry point.

A package names a function under `[project.entry-points."perdure.schema"]`. It is called with an object that
nothing else here can read, and returns a `StandardSchema`, or None if it cannot read it either.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from perdure.schema.refusals import FormRefused
from perdure.schema.standard import ATTRIBUTE, SchemaContract, contract_of
from perdure.schema.wording import printable

GROUP = "perdure.schema"

Adapter = Callable[[object], Any]


def adapted(form: object) -> SchemaContract[Any, Any] | None:
    """The contract that an installed adapter gives a form; None if none does. Raises FormRefused."""
    for name, adapter in _adapters():
        if (schema := adapter(form)) is None:
            continue
        if not hasattr(schema, ATTRIBUTE):
            raise FormRefused(
                f"The schema adapter {printable(name)} returned a {type(schema).__name__}, "
                "not a StandardSchema."
            )
        return contract_of(schema)
    return None


@cache
def _adapters() -> tuple[tuple[str, Adapter], ...]:
    from importlib.metadata import entry_points

    found = sorted(entry_points(group=GROUP), key=lambda point: point.name)
    return tuple((point.name, point.load()) for point in found)
