"""The same order in every library: a required id, a key with a default, a date, and orders within it."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import attrs
import marshmallow as mm
import msgspec
import pydantic
import typing_extensions
from annotated_types import MinLen
from pydantic import Field

OrderId = Annotated[str, MinLen(1)]


class ModelOrder(pydantic.BaseModel):
    order_id: OrderId
    priority: Literal["normal", "urgent"] = "normal"
    due: dt.date | None = None
    parts: list[ModelOrder] = []


@pydantic.dataclasses.dataclass
class PydanticDataOrder:
    order_id: OrderId
    priority: Literal["normal", "urgent"] = "normal"
    due: dt.date | None = None
    parts: list[PydanticDataOrder] = Field(default_factory=list)


@dataclasses.dataclass
class DataOrder:
    order_id: OrderId
    priority: Literal["normal", "urgent"] = "normal"
    due: dt.date | None = None
    parts: list[DataOrder] = dataclasses.field(default_factory=list)


class DictOrder(TypedDict):
    order_id: OrderId
    priority: NotRequired[Literal["normal", "urgent"]]
    due: NotRequired[dt.date | None]
    parts: NotRequired[list[DictOrder]]


class BackportedDictOrder(typing_extensions.TypedDict):
    order_id: OrderId
    priority: typing_extensions.NotRequired[Literal["normal", "urgent"]]
    due: typing_extensions.NotRequired[dt.date | None]
    parts: typing_extensions.NotRequired[list[BackportedDictOrder]]


class StructOrder(msgspec.Struct):
    order_id: Annotated[str, msgspec.Meta(min_length=1)]
    priority: Literal["normal", "urgent"] = "normal"
    due: dt.date | None = None
    parts: list[StructOrder] = []


@attrs.define
class AttrsOrder:
    order_id: str = attrs.field(validator=[attrs.validators.instance_of(str), attrs.validators.min_len(1)])
    priority: str = attrs.field(default="normal", validator=attrs.validators.in_(["normal", "urgent"]))
    due: dt.date | None = None
    parts: list[AttrsOrder] = attrs.field(factory=list)


class MarshmallowOrder(mm.Schema):
    order_id = mm.fields.Str(required=True, validate=mm.validate.Length(min=1))
    priority = mm.fields.Str(load_default="normal", validate=mm.validate.OneOf(["normal", "urgent"]))
    due = mm.fields.Date(allow_none=True, load_default=None)
    parts = mm.fields.List(mm.fields.Nested("MarshmallowOrder"), load_default=list)


def ship_order(
    order_id: OrderId,
    priority: Literal["normal", "urgent"] = "normal",
    due: dt.date | None = None,
    parts: list[DataOrder] | None = None,
) -> None:
    """Something to call."""


# A type and whether its default is put in (a TypedDict has none).
FORMS: dict[str, Any] = {
    "pydantic model": ModelOrder,
    "pydantic dataclass": PydanticDataOrder,
    "dataclass": DataOrder,
    "msgspec struct": StructOrder,
    "attrs class": AttrsOrder,
    "marshmallow schema": MarshmallowOrder,
    "marshmallow instance": MarshmallowOrder(),
    "TypedDict": DictOrder,
    "TypedDict of typing_extensions": BackportedDictOrder,
}


def field(value: Any, name: str) -> Any:
    """A field of an order of any library."""
    return value.get(name) if isinstance(value, dict) else getattr(value, name)
