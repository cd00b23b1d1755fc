"""`StandardSchema`: objects of any library, complete or not, and validators that break their contract."""

from __future__ import annotations

import gc
import importlib.metadata
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import attrs
import marshmallow as mm
import msgspec
import pydantic
import pytest

from perdure.schema import (
    AsynchronousValidator,
    BrokenValidator,
    Failure,
    FormRefused,
    Issue,
    SchemaContract,
    SchemaRefused,
    StandardSchema,
    Success,
    ValidatorFault,
    schema_of,
)
from perdure.schema.adapters import entry_points

JSON = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "unit": {"type": "string", "default": "kg"}},
    "required": ["n"],
}


@dataclass(frozen=True)
class Weight:
    n: int
    unit: str


class WeightContract:
    """A schema written by hand."""

    vendor = "by hand"
    version = 1

    def __init__(self, judge: Callable[[Any], Any] | None = None, document: Any = None) -> None:
        self._judge = judge
        self._document = JSON if document is None else document

    def validate(self, value: Any, /) -> Success[Weight] | Failure:
        if self._judge is not None:
            return self._judge(value)  # type: ignore[no-any-return]
        if not isinstance(value, dict) or not isinstance(value.get("n"), int):
            return Failure([Issue("must be a whole number", ("n",))])
        return Success(Weight(value["n"], value.get("unit", "kg")))

    def json_schema_input(self) -> dict[str, Any]:
        return self._document

    def json_schema_output(self) -> dict[str, Any]:
        return JSON | {"required": ["n", "unit"]}


class Weights:
    def __init__(self, contract: Any = None) -> None:
        self._contract = WeightContract() if contract is None else contract

    @property
    def __standard_schema__(self) -> SchemaContract[Any, Weight]:
        return self._contract


def test_an_object_that_implements_the_protocol_is_a_schema() -> None:
    schema = schema_of(Weights())
    assert isinstance(Weights(), StandardSchema)
    assert schema.form == "standard"
    assert schema.strict
    assert schema.json_schema["required"] == ["n", "unit"]
    assert schema.validate({"n": 3, "unit": None}) == Success(Weight(3, "kg"))
    assert schema.dump(Weight(3, "kg")) == {"n": 3, "unit": "kg"}
    assert schema.output_schema()["required"] == ["n", "unit"]
    outcome = schema.validate({"n": "hunter2"})
    assert isinstance(outcome, Failure)
    assert [str(issue) for issue in outcome.issues] == ["n: must be an integer, got a string"]


@pytest.mark.parametrize("form", [Weights(), type("Marsh", (mm.Schema,), {"n": mm.fields.Int()})])
def test_strict_false_is_refused(form: Any) -> None:
    with pytest.raises(FormRefused, match="always strict; leave out strict=False"):
        schema_of(form, strict=False)
    with pytest.raises(FormRefused, match="always strict"):
        schema_of(schema_of(form), strict=False)


@pytest.mark.parametrize(
    ("missing", "says"),
    [
        (
            ["json_schema_input", "json_schema_output"],
            "It can validate, but a model needs its JSON Schema: __standard_schema__ has no "
            "json_schema_input(), json_schema_output().",
        ),
        (["json_schema_output"], "has no json_schema_output()."),
        (["validate"], "__standard_schema__ has no validate()."),
        (["vendor", "version"], "has no vendor, version."),
    ],
)
def test_an_incomplete_object_is_refused_with_what_it_lacks(missing: list[str], says: str) -> None:
    members = {
        "vendor": "v",
        "version": 1,
        "validate": Success,
        "json_schema_input": lambda: JSON,
        "json_schema_output": lambda: JSON,
    }
    for member in missing:
        del members[member]
    contract = type("Contract", (), {})()
    vars(contract).update(members)
    with pytest.raises(FormRefused) as refused:
        schema_of(Weights(contract))
    assert says in str(refused.value)


def test_an_unknown_version_of_the_protocol_is_refused() -> None:
    contract = WeightContract()
    contract.version = 2
    with pytest.raises(FormRefused, match="version 2 of StandardSchema; only 1"):
        schema_of(Weights(contract))


@pytest.mark.parametrize(
    ("document", "error", "says"),
    [
        ({"type": "string"}, SchemaRefused, "wrap other values in a property"),
        ({"type": "object", "additionalProperties": True}, SchemaRefused, "name the properties"),
        ("no schema", FormRefused, "json_schema_input() returned str"),
    ],
)
def test_a_json_schema_that_cannot_be_used_is_refused_at_once(
    document: Any, error: type[Exception], says: str
) -> None:
    with pytest.raises(error) as refused:
        schema_of(Weights(WeightContract(document=document)))
    assert says in str(refused.value)


# Validators that break their contract.


async def _later(value: Any = None) -> Success[Any]:
    return Success(value)


class _Awaitable:
    def __await__(self) -> Iterator[Any]:
        yield


@pytest.mark.parametrize(
    "judge",
    [
        _later,
        lambda value: Success(_later(value)),
        lambda value: _Awaitable(),
    ],
)
def test_an_awaitable_is_a_fault_of_its_own_and_no_invalid_value(judge: Callable[[Any], Any]) -> None:
    schema = schema_of(Weights(WeightContract(judge)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(AsynchronousValidator, match="returned an awaitable"):
            schema.validate({"n": 1})
        gc.collect()
    assert issubclass(AsynchronousValidator, ValidatorFault)
    assert not issubclass(ValidatorFault, ValueError)


def test_a_coroutine_function_is_refused_at_once() -> None:
    contract = WeightContract()
    contract.validate = _later  # type: ignore[method-assign, assignment]
    with pytest.raises(FormRefused, match=r"validate\(\) is a coroutine function"):
        schema_of(Weights(contract))


class _AsyncModel(pydantic.BaseModel):
    n: int

    @pydantic.field_validator("n")
    @classmethod
    async def look(cls, value: int) -> int:
        return value


class _AsyncStruct(msgspec.Struct):
    n: int

    async def __post_init__(self) -> None: ...


async def _async_check(*_: Any) -> None: ...


@attrs.define
class _AsyncAttrs:
    n: int = attrs.field(validator=_async_check)


class _AsyncField(mm.Schema):
    n = mm.fields.Int(validate=_async_check)  # type: ignore[arg-type]


class _AsyncHook(mm.Schema):
    n = mm.fields.Int()

    @mm.post_load
    async def make(self, data: Any, **_: Any) -> Any:
        return data


@pytest.mark.parametrize("form", [_AsyncModel, _AsyncStruct, _AsyncAttrs, _AsyncField, _AsyncHook])
def test_asynchronous_validators_of_every_library_are_refused_at_once(form: Any) -> None:
    with pytest.raises(FormRefused, match="synchronous"):
        schema_of(form)


@pytest.mark.parametrize(
    ("judge", "says"),
    [
        (lambda value: value["missing"], "raised KeyError"),
        (lambda value: value, "returned dict where a Success or Failure was expected"),
        (lambda value: Failure([]), "returned a Failure without issues"),
        (lambda value: Failure(["text"]), "returned a Failure without issues"),
    ],
)
def test_a_validator_that_breaks_its_contract_is_told_apart(judge: Any, says: str) -> None:
    schema = schema_of(Weights(WeightContract(judge)))
    with pytest.raises(BrokenValidator, match="The validator of by hand") as fault:
        schema.validate({"n": 1})
    assert says in str(fault.value)


def test_a_model_whose_validator_raises_something_else_is_told_apart() -> None:
    class Model(pydantic.BaseModel):
        n: int

        @pydantic.field_validator("n")
        @classmethod
        def look(cls, value: int) -> int:
            raise LookupError("hunter2")

    with pytest.raises(BrokenValidator, match="raised LookupError") as fault:
        schema_of(Model).validate({"n": 1})
    assert "hunter2" not in str(fault.value)


# Adapters of other packages.


class _ForeignType:
    """A type of a library that nobody here has heard of."""


class _Point:
    name = "foreign"

    def __init__(self, load: Callable[[], Any]) -> None:
        self.load = load


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[object], Any]], None]]:
    def install(adapter: Callable[[object], Any]) -> None:
        def points(*, group: str) -> list[_Point]:
            return [_Point(lambda: adapter)] if group == "perdure.schema" else []

        monkeypatch.setattr(importlib.metadata, "entry_points", points)
        entry_points._adapters.cache_clear()

    yield install
    entry_points._adapters.cache_clear()


def test_an_installed_adapter_reads_what_nothing_else_can(installed: Any) -> None:
    asked: list[object] = []

    def adapter(form: object) -> Weights | None:
        asked.append(form)
        return Weights() if form is _ForeignType else None

    installed(adapter)
    schema = schema_of(_ForeignType)
    assert schema.form == "standard"
    assert schema.validate({"n": 3}) == Success(Weight(3, "kg"))
    schema_of(_AsyncModelWithout)
    assert asked == [_ForeignType]
    with pytest.raises(FormRefused, match="A value of type int is not a schema"):
        schema_of(3)  # type: ignore[call-overload]


class _AsyncModelWithout(pydantic.BaseModel):
    n: int


def test_an_adapter_that_returns_no_schema_is_named(installed: Any) -> None:
    installed(lambda form: 3)
    with pytest.raises(FormRefused, match="The schema adapter foreign returned a int"):
        schema_of(_ForeignType)
