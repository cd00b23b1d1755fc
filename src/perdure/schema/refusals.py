"""Why a schema is not accepted: a JSON Schema and where in it, or a Python object and what it lacks."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.schema.wording import json_path


class SchemaRefused(ValueError):
    """A schema cannot be served: `path` points into it (`$.properties.order_id.pattern`), `reason` says why.

    `str()` joins both to one sentence for people; it quotes at most a bounded piece of the schema.
    """

    def __init__(self, path: Sequence[str | int], reason: str, *, what: str = "schema") -> None:
        self.parts = tuple(path)
        self.path = json_path(self.parts)
        self.reason = reason
        self.what = what
        super().__init__(f"Invalid {what}: {reason} (at {self.path}).")

    def within(self, what: str) -> SchemaRefused:
        """The same refusal, naming the thing that the schema is of."""
        return SchemaRefused(self.parts, self.reason, what=what)


class FormRefused(TypeError):
    """An object cannot serve as a schema here: it is of no form that is understood, lacks a part, or is
    combined with an option that its form does not have. The message says what to give instead.
    """
