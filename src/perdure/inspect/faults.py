"""What ends an inspection: a sentence for people that says what is wrong and where."""

from __future__ import annotations


class InspectError(Exception):
    """Something cannot be read, or a question cannot be asked. The message stands alone."""


class Unreadable(InspectError):
    """A session, file, server or database that cannot be read."""


class BadQuestion(InspectError):
    """A path expression, an id or a pattern that cannot be used."""
