"""What type checkers infer for each form of schema. Checked, and never run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NotRequired, TypedDict, assert_type

import attrs
import marshmallow as mm
import msgspec
import pydantic

from perdure.schema import (
    Arguments,
    Failure,
    Schema,
    SchemaContract,
    StandardSchema,
    Success,
    from_marshmallow,
    schema_of,
)


class Model(pydantic.BaseModel):
    order_id: str


@pydantic.dataclasses.dataclass
class PydanticData:
    order_id: str


@dataclasses.dataclass
class Data:
    order_id: str


class Row(TypedDict):
    order_id: str
    note: NotRequired[str]


class Struct(msgspec.Struct):
    order_id: str


@attrs.define
class Attrs:
    order_id: str


class Marsh(mm.Schema):
    order_id = mm.fields.Str()


class Contract:
    vendor = "by hand"
    version = 1

    def validate(self, value: object, /) -> Success[Data] | Failure:
        return Success(Data("x"))

    def json_schema_input(self) -> dict[str, Any]:
        return {}

    def json_schema_output(self) -> dict[str, Any]:
        return {}


class Standard:
    @property
    def __standard_schema__(self) -> Contract:
        return Contract()


def ship(order_id: str, count: int = 1) -> None: ...
async def ship_later(order_id: str) -> None: ...


def types() -> None:
    assert_type(schema_of(Model), Schema[Model])
    assert_type(schema_of(PydanticData), Schema[PydanticData])
    assert_type(schema_of(Data), Schema[Data])
    assert_type(schema_of(Row), Schema[Row])
    assert_type(schema_of(Struct), Schema[Struct])
    assert_type(schema_of(Attrs, strict=False), Schema[Attrs])


def standard(given: StandardSchema[Any, int]) -> None:
    assert_type(schema_of(Standard()), Schema[Data])
    assert_type(schema_of(given), Schema[int])
    assert_type(schema_of(Marsh()), Schema[Any])
    assert_type(schema_of(Marsh), Schema[Any])
    assert_type(from_marshmallow(Marsh(), Row), StandardSchema[Any, Row])
    assert_type(schema_of(from_marshmallow(Marsh, Data)), Schema[Data])
    contract: SchemaContract[object, Data] = Contract()
    complete: StandardSchema[Mapping[str, object], Data] = Standard()
    assert_type(complete.__standard_schema__.validate({}), Success[Data] | Failure)
    assert contract


def json_schema() -> None:
    raw: dict[str, Any] = {"type": "object"}
    assert_type(schema_of(raw), Schema[Any])
    assert_type(schema_of({"type": "object"}, validate=True), Schema[Any])


def functions(unknown: Callable[..., int]) -> None:
    assert_type(schema_of(ship), Schema[Arguments])
    assert_type(schema_of(ship_later, skip=["context"]), Schema[Arguments])
    assert_type(schema_of(unknown), Schema[Arguments])
    assert_type(Arguments().call(unknown), int)


def again() -> None:
    assert_type(schema_of(schema_of(Data)), Schema[Data])


def values() -> None:
    outcome = schema_of(Struct).parse_arguments("{}")
    assert_type(outcome, Success[Struct] | Failure)
    match outcome:
        case Success(value):
            assert_type(value, Struct)
        case Failure(issues=issues):
            assert_type(issues[0].path, tuple[str | int, ...])
    general: Schema[object] = schema_of(Data)
    assert general


def refused() -> None:
    schema_of(3)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    schema_of(Data, validate=True)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    wrong: Schema[int] = schema_of(Data)  # type: ignore[assignment]  # pyright: ignore
    assert wrong
