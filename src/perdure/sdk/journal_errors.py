"""What goes wrong with a tool journal or a ledger. Each message stands alone."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.sdk.errors import SdkError


class JournalError(SdkError):
    """The journal cannot be opened, or was asked for something that it cannot do."""


class JournalUnavailable(JournalError):
    """The journal's database does not answer or cannot be written just now. Trying again may help."""


class NotJson(JournalError):
    """A value has no JSON form and cannot be recorded."""


class LedgerError(JournalError):
    """A ledger is missing, malformed, or in the way."""


class LedgerInvalid(LedgerError):
    """A change would leave a ledger that does not fit its schema. Nothing was changed.

    `issues` are lines of path and rule, without values.
    """

    def __init__(self, message: str, issues: Sequence[str]) -> None:
        super().__init__(message)
        self.issues = tuple(issues)


class LedgerConflict(LedgerError):
    """Somebody else changed the same fields since the ledger was read. Nothing was changed.

    `fields` are the fields, `by` is who changed them last: a call id, or `application`.
    """

    def __init__(self, fields: Sequence[str], by: str, version: int) -> None:
        self.fields = tuple(fields)
        self.by = by
        self.version = version
        names = ", ".join(fields)
        super().__init__(
            f"The ledger's {names} was changed by {by} (version {version}) after it was read. Read it again, "
            "or change it with a function, which is applied to the newest value."
        )
