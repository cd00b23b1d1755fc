"""A check for authors of schema adapters: everything that `StandardSchema` asks for, tried out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any

from perdure.schema.arguments import ArgumentValidator
from perdure.schema.bounds import CheckedSchema
from perdure.schema.dumping import jsonable
from perdure.schema.forms import schema_of
from perdure.schema.refusals import FormRefused, SchemaRefused
from perdure.schema.results import Failure, Issue, Success, ValidatorFault
from perdure.schema.standard import SchemaContract, StandardSchema, contract_of, judged
from perdure.schema.typed import Schema
from perdure.schema.wording import printable

STRANGE: tuple[Any, ...] = (
    None, True, 0, -1.5, "", "strange", [], {}, {"strange": None}, [{"strange": []}], {"": {"": ""}},
)  # fmt: skip


class AdapterFault(AssertionError):
    """An adapter does not do what StandardSchema asks for. `faults` are all that were found."""

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("The adapter breaks StandardSchema:\n" + "\n".join(f"- {fault}" for fault in faults))


def check_adapter(schema: StandardSchema[Any, Any], *, valid: Sequence[Any], invalid: Sequence[Any]) -> None:
    """Try out a StandardSchema that an adapter made. Call it in the adapter's tests.

    Args:
        schema: the adapted schema, best one with optional keys, a nested object and a list of objects.
        valid: JSON values that it must accept, such as a model would send; at least one.
        invalid: JSON values that it must reject; at least one.

    Raises AdapterFault with every fault that was found.
    """
    faults = list(_faults(schema, valid, invalid))
    if faults:
        raise AdapterFault(list(dict.fromkeys(faults)))


def _faults(schema: StandardSchema[Any, Any], valid: Sequence[Any], invalid: Sequence[Any]) -> Iterator[str]:
    if not valid or not invalid:
        yield "the check needs at least one valid and one invalid value"
    try:
        contract = contract_of(schema)
        typed: Schema[Any] = schema_of(schema)
    except (FormRefused, SchemaRefused) as refused:
        yield str(refused)
        return
    except AttributeError as error:
        yield str(error)
        return
    if wrong := list(_schema_faults(contract)):
        yield from wrong
        return
    for index, value in enumerate(valid):
        for fault in _valid_faults(contract, typed, value):
            yield f"valid[{index}]: {fault}"
    for index, value in enumerate(invalid):
        for fault in _invalid_faults(contract, value):
            yield f"invalid[{index}]: {fault}"
    for value in STRANGE:
        try:
            judged(contract, value)
        except ValidatorFault as fault:
            yield f"validate({value!r}): {_told(fault)}"


def _schema_faults(contract: SchemaContract[Any, Any]) -> Iterator[str]:
    for method in (contract.json_schema_input, contract.json_schema_output):
        name = getattr(method, "__name__", "json_schema")
        document: Any = method()
        if not isinstance(document, dict):
            yield f"{name}() returns {type(document).__name__}, not a dict"
        elif document != method():
            yield f"{name}() returns something else each time"
        else:
            try:
                CheckedSchema(deepcopy(document))
            except SchemaRefused as refused:
                yield f"{name}(): {refused}"


def _valid_faults(contract: SchemaContract[Any, Any], typed: Schema[Any], value: Any) -> Iterator[str]:
    given = deepcopy(value)
    try:
        outcome = judged(contract, given)
    except ValidatorFault as fault:
        yield _told(fault)
        return
    if given != value:
        yield "validate() changes the value it is given"
    if isinstance(outcome, Failure):
        yield f"is rejected: {outcome.issues[0]}"
        return
    if problems := ArgumentValidator(CheckedSchema(deepcopy(typed.author_schema))).problems(value):
        yield f"validate() accepts it, json_schema_input() does not: {problems[0]}"
    if isinstance(value, dict):
        yield from _strict_faults(typed, value, outcome)
    try:
        again = typed.dump(outcome.value)
    except TypeError:
        yield "the validated value has no JSON; add dump(value) to the contract"
        return
    document = contract.json_schema_output()
    if problems := ArgumentValidator(CheckedSchema(deepcopy(document))).problems(again):
        yield f"json_schema_output() does not describe the validated value: {problems[0]}"
    if again != jsonable(again):
        yield "dump() returns something that is not JSON"


def _strict_faults(typed: Schema[Any], value: dict[str, Any], outcome: Success[Any]) -> Iterator[str]:
    """Null at the root for whatever may be left out must come to the same as leaving it out."""
    properties = typed.json_schema["properties"]
    author = typed.author_schema
    assert isinstance(properties, dict)
    filled = {name: value.get(name) for name in properties} | value
    if ArgumentValidator(CheckedSchema(deepcopy(typed.json_schema))).problems(filled):
        # A key that may be left out and may be null has no strict form of "left out".
        return
    try:
        strict = typed.validate(filled)
    except ValidatorFault as fault:
        yield _told(fault)
        return
    if isinstance(strict, Failure):
        yield f"is rejected in strict form: {strict.issues[0]}"
    elif filled == value and typed.dump(strict.value) != typed.dump(outcome.value):
        yield f"comes to another value in strict form of {printable(str(author.get('title', 'the schema')))}"


def _invalid_faults(contract: SchemaContract[Any, Any], value: Any) -> Iterator[str]:
    try:
        outcome = judged(contract, deepcopy(value))
    except ValidatorFault as fault:
        yield _told(fault)
        return
    if isinstance(outcome, Success):
        yield "is accepted"
        return
    for issue in outcome.issues:
        yield from _issue_faults(issue, value)


def _issue_faults(issue: Issue, value: Any) -> Iterator[str]:
    if not isinstance(issue.message, str) or not issue.message.strip():
        yield "an issue has no message"
    if not isinstance(issue.path, tuple) or not all(isinstance(part, str | int) for part in issue.path):
        yield "the path of an issue is not a tuple of keys and indexes"
        return
    for part in issue.path[:-1]:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            yield "the path of an issue leads nowhere in the value"
            return


def _told(fault: ValidatorFault) -> str:
    cause = f": {printable(str(fault.__cause__))}" if fault.__cause__ else ""
    return f"{fault}{cause}"
