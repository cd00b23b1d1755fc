"""`StandardSchema`: what an object implements to be a schema, whatever library it comes from."""

from __future__ import annotations

import inspect
from typing import Any, Protocol, TypeVar, runtime_checkable

from perdure.schema.refusals import FormRefused
from perdure.schema.results import AsynchronousValidator, BrokenValidator, Failure, Issue, Success
from perdure.schema.wording import listed, printable

Input_contra = TypeVar("Input_contra", contravariant=True)
Output_co = TypeVar("Output_co", covariant=True)
T = TypeVar("T")

ATTRIBUTE = "__standard_schema__"
VERSION = 1
_MEMBERS = ("vendor", "version", "validate", "json_schema_input", "json_schema_output")
_METHODS = frozenset({"validate", "json_schema_input", "json_schema_output"})


class SchemaContract(Protocol[Input_contra, Output_co]):
    """What stands under the one attribute of a `StandardSchema`.

    An adapter may also have `dump(value)`, which turns a validated value back into JSON; without it, the
    usual conversion by type is used.
    """

    @property
    def vendor(self) -> str:
        """The name of the library or adapter, for error messages."""
        ...

    @property
    def version(self) -> int:
        """The version of this protocol: 1."""
        ...

    def validate(self, value: Input_contra, /) -> Success[Output_co] | Failure:
        """Check a JSON value and convert it. Synchronous; leaves `value` as it is; raises for no value.

        Any JSON value may come, not only those of the type Input.
        """
        ...

    def json_schema_input(self) -> dict[str, Any]:
        """The JSON Schema of what `validate` takes: an object at the root, references only to itself."""
        ...

    def json_schema_output(self) -> dict[str, Any]:
        """The JSON Schema of validated values once they are JSON again."""
        ...


@runtime_checkable
class StandardSchema(Protocol[Input_contra, Output_co]):
    """A schema of any library: JSON of type Input goes in, a validated value of type Output comes out."""

    @property
    def __standard_schema__(self) -> SchemaContract[Input_contra, Output_co]:
        """Everything there is to the protocol, under one name that no library uses for itself."""
        ...


def contract_of(form: StandardSchema[Any, T]) -> SchemaContract[Any, T]:
    """The contract under the attribute. Raises FormRefused, naming what is missing."""
    contract = form.__standard_schema__
    named = printable(type(form).__name__ if not isinstance(form, type) else form.__name__, 64)
    missing = [
        member
        for member in _MEMBERS
        if not (
            callable(getattr(contract, member, None)) if member in _METHODS else hasattr(contract, member)
        )
    ]
    if missing:
        only = "It can validate, but a model needs its JSON Schema: " if "validate" not in missing else ""
        raise FormRefused(
            f"{named} is not a complete StandardSchema. {only}{ATTRIBUTE} has no "
            f"{listed((_signature(member) for member in missing), len(missing))}."
        )
    if contract.version != VERSION:
        raise FormRefused(
            f"{named} implements version {contract.version!r:.20} of StandardSchema; only {VERSION} is known."
        )
    if not isinstance(contract.vendor, str) or not contract.vendor:
        raise FormRefused(f"{named}: the vendor in {ATTRIBUTE} must be a name.")
    for method in sorted(_METHODS):
        if inspect.iscoroutinefunction(getattr(contract, method)):
            raise FormRefused(
                f"{named}: {_signature(method)} is a coroutine function; validation is synchronous."
            )
    return contract


def judged(contract: SchemaContract[Any, T], value: object) -> Success[T] | Failure:
    """The verdict of a contract on a value.

    Raises AsynchronousValidator if anything awaitable comes back, BrokenValidator if the validator raises or
    returns no result.
    """
    vendor = contract.vendor
    try:
        outcome: object = contract.validate(value)
    except Exception as error:
        raise BrokenValidator(vendor, f"raised {type(error).__name__}") from error
    refuse_awaitable(outcome, vendor)
    match outcome:
        case Success():
            refuse_awaitable(outcome.value, vendor)
            return outcome
        case Failure(issues=issues) if issues and all(isinstance(issue, Issue) for issue in issues):
            return outcome
        case Failure():
            raise BrokenValidator(vendor, "returned a Failure without issues")
        case _:
            raise BrokenValidator(
                vendor, f"returned {type(outcome).__name__} where a Success or Failure was expected"
            )


def refuse_awaitable(value: object, vendor: str) -> None:
    """Raises AsynchronousValidator for an awaitable. A coroutine is closed, so that none is left over."""
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()
        raise AsynchronousValidator(vendor)


def _signature(member: str) -> str:
    return f"{member}()" if member in _METHODS else member
