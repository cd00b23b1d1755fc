"""What validating a value comes to: the typed value, the issues, or a validator that broke its contract."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from perdure.schema.arguments import DESCRIPTION_BYTES, Problem, problem_list
from perdure.schema.wording import printable, value_path

T_co = TypeVar("T_co", covariant=True)

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Issue:
    """One broken rule. `path` leads from the root of the value to the place; empty means the value itself.

    The message says what the rule asks for. It must not repeat the value: values may be secrets.
    """

    message: str
    path: Path = ()

    def __str__(self) -> str:
        return str(self.problem)

    @property
    def problem(self) -> Problem:
        """The issue in the words of an error: `lines[2].sku`, and the rule on one bounded line."""
        return Problem(value_path(self.path), printable(self.message), self.path)


@dataclass(frozen=True, slots=True)
class Success(Generic[T_co]):
    """The value is valid: `value` is what the application gets, with defaults and conversions applied."""

    value: T_co


@dataclass(frozen=True, slots=True)
class Failure:
    """The value is invalid, for at least one reason."""

    issues: Sequence[Issue]

    def describe(self, heading: str, limit_bytes: int = DESCRIPTION_BYTES) -> str:
        """The heading and one `path: rule` line for each issue, in at most `limit_bytes` of UTF-8."""
        return problem_list(heading, [issue.problem for issue in self.issues], limit_bytes)


class ValidatorFault(Exception):
    """A validator broke its contract. Nothing is known about the value, so it must not count as invalid.

    `vendor` names the library or adapter. No fallback for invalid input may run because of this error.
    """

    def __init__(self, vendor: str, reason: str) -> None:
        self.vendor = vendor
        self.reason = reason
        super().__init__(f"The validator of {printable(vendor, 64)} {reason}.")


class AsynchronousValidator(ValidatorFault):
    """A validator returned an awaitable. Validation is synchronous; await in the tool function instead."""

    def __init__(self, vendor: str) -> None:
        super().__init__(
            vendor,
            "returned an awaitable; validators are synchronous, so do what must be awaited in the function",
        )


class BrokenValidator(ValidatorFault):
    """A validator raised something else than a validation error, or returned something else than a result."""
