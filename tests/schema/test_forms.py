"""Schemas of every form: what the model is shown, and what the application gets."""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
from typing import Annotated, Any, Generic, Literal, TypedDict, TypeVar

import attrs
import jsonschema
import marshmallow as mm
import msgspec
import pydantic
import pytest
from tests.schema.orders import FORMS, AttrsOrder, DataOrder, DictOrder, StructOrder, field, ship_order

from perdure.schema import (
    Arguments,
    Failure,
    FormRefused,
    Schema,
    SchemaRefused,
    Success,
    from_marshmallow,
    jsonable,
    schema_of,
)

T = TypeVar("T")
every_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def value_of(schema: Schema[Any], value: Any) -> Any:
    outcome = schema.validate(value)
    assert isinstance(outcome, Success), outcome
    return outcome.value


def issues_of(schema: Schema[Any], value: Any) -> list[str]:
    outcome = schema.validate(value)
    assert isinstance(outcome, Failure), outcome
    return [str(issue) for issue in outcome.issues]


@every_form
def test_defaults_and_conversions_apply_at_every_depth(form: Any) -> None:
    schema = schema_of(form)
    part = {"order_id": "A-2", "priority": None, "due": "2026-03-01", "parts": None}
    value = value_of(schema, {"order_id": "A-1", "priority": None, "due": None, "parts": [part]})
    inner = field(value, "parts")[0]
    has_defaults = "TypedDict" not in str(schema.form) and form not in _without_defaults()
    assert field(value, "order_id") == "A-1"
    assert field(value, "due") is None
    assert field(inner, "due") == dt.date(2026, 3, 1)
    assert field(value, "priority") == ("normal" if has_defaults else None)
    assert field(inner, "priority") == ("normal" if has_defaults else None)
    assert field(inner, "parts") == ([] if has_defaults else None)


def _without_defaults() -> list[Any]:
    return [form for name, form in FORMS.items() if "TypedDict" in name]


@every_form
def test_the_model_is_shown_the_same_strict_form(form: Any) -> None:
    schema = schema_of(form).json_schema
    jsonschema.Draft202012Validator.check_schema(schema)
    properties: Any = schema["properties"]
    assert schema["required"] == ["order_id", "priority", "due", "parts"]
    assert schema["additionalProperties"] is False
    assert properties["order_id"]["minLength"] == 1
    options = [member.get("enum") for member in properties["priority"]["anyOf"]]
    assert options == [["normal", "urgent"], None]
    assert [member["type"] for member in properties["parts"]["anyOf"]] == ["array", "null"]


@every_form
def test_a_value_comes_back_as_json(form: Any) -> None:
    schema = schema_of(form)
    given = {"order_id": "A-1", "priority": "urgent", "due": "2026-03-01", "parts": []}
    assert schema.dump(value_of(schema, given)) == given


@every_form
def test_issues_have_path_and_rule_and_not_the_value(form: Any) -> None:
    schema = schema_of(form)
    bad = {"order_id": "A-1", "priority": "hunter2", "parts": [{"order_id": "", "due": "hunter2-date"}, {}]}
    text = "\n".join(issues_of(schema, bad))
    assert 'priority: must be one of "normal", "urgent"' in text
    assert "parts[0].order_id: must have at least 1 character" in text
    assert "parts[1].order_id: is required" in text
    assert "hunter2" not in text
    assert "hunter2" not in "\n".join(issues_of(schema, {"order_id": "A", "due": "hunter2-date"}))


@every_form
def test_what_only_the_library_knows_is_told_as_well(form: Any) -> None:
    issues = issues_of(schema_of(form), {"order_id": "A", "due": "hunter2-date"})
    assert len(issues) == 1
    assert "hunter" not in issues[0]


def test_a_typed_value_is_of_its_type() -> None:
    order = {"order_id": "A-1"}
    for form in (DataOrder, StructOrder, AttrsOrder):
        assert type(value_of(schema_of(form), order)) is form
    assert value_of(schema_of(DictOrder), order) == order


def test_texts_are_read_as_a_model_writes_them() -> None:
    schema = schema_of(DataOrder)
    assert isinstance(schema.parse_arguments('{"order_id": "A"}'), Success)
    assert isinstance(schema.parse_output('{"order_id": "A"}'), Success)
    fault = schema.parse_output('{"order_id": "hunter2')
    assert isinstance(fault, Failure)
    description = fault.describe("The answer is not valid:")
    assert description.startswith("The answer is not valid:\n- (root): the text is not valid JSON")
    assert "hunter2" not in description
    assert isinstance(schema.parse_arguments("[]"), Failure)


def test_a_description_is_bounded() -> None:
    keys = {f"key{index}" * 20: "secret" * 100 for index in range(1_000)}
    form: Any = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
    outcome = schema_of(form, validate=True).validate(keys)
    assert isinstance(outcome, Failure)
    assert len(outcome.issues) <= 20
    description = outcome.describe("Wrong:")
    assert len(description.encode()) <= 2_048
    assert "secret" not in description


# JSON Schema.

RAW: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 1}, "note": {"type": "string"}},
    "required": ["n"],
}


def test_json_schema_only_parses() -> None:
    schema = schema_of(RAW)
    assert not schema.validates
    assert value_of(schema, {"n": "not a number", "note": None}) == {"n": "not a number"}
    assert schema.parse_output("3") == Success(3)
    assert isinstance(schema.parse_output("{"), Failure)
    assert schema.form == "json"


def test_json_schema_validates_on_request() -> None:
    schema = schema_of(RAW, validate=True)
    assert value_of(schema, {"n": 2, "note": None}) == {"n": 2}
    assert issues_of(schema, {"n": 0, "note": None}) == ["n: must be ≥ 1"]
    with pytest.raises(FormRefused, match="validate=True is for JSON Schema"):
        schema_of(DataOrder, validate=True)  # type: ignore[call-overload]


def test_a_schema_given_is_not_changed() -> None:
    before = repr(RAW)
    schema_of(RAW)
    assert repr(RAW) == before


class One(msgspec.Struct, tag="one"):
    n: int = 1


class Two(msgspec.Struct, tag="two"):
    n: str | None = "2"


class Both(msgspec.Struct):
    either: One | Two


class Card(pydantic.BaseModel):
    kind: Literal["card"] = "card"
    number: int = 1


class Cash(pydantic.BaseModel):
    kind: Literal["cash"]
    number: str | None = None


class Payment(pydantic.BaseModel):
    by: Card | Cash = pydantic.Field(discriminator="kind")


# Functions.


def test_a_signature_is_a_schema_of_its_parameters() -> None:
    schema = schema_of(ship_order)
    arguments = value_of(schema, {"order_id": "A", "priority": None, "due": "2026-03-01", "parts": None})
    assert arguments == Arguments({"order_id": "A", "due": dt.date(2026, 3, 1), "parts": None})
    properties: Any = schema.json_schema["properties"]
    assert properties["priority"]["default"] == "normal"
    assert issues_of(schema, {"order_id": "A", "other": 1})[0].startswith("other: unknown property")


def test_a_function_is_called_with_its_arguments_and_its_own_defaults() -> None:
    def function(
        context: str,
        first: int,
        /,
        second: Annotated[int, pydantic.Field(ge=2)] = 7,
        *,
        third: str = pydantic.Field("x", max_length=2),
        fourth: list[int] = [4],  # noqa: B006
    ) -> tuple[object, ...]:
        return context, first, second, third, fourth

    schema = schema_of(function, skip=["context"])
    assert schema.json_schema["required"] == ["first", "second", "third", "fourth"]
    given = {"first": 1, "second": None, "third": None, "fourth": None}
    assert value_of(schema, given).call(function, "ctx") == ("ctx", 1, 7, "x", [4])
    assert issues_of(schema, {"first": 1, "second": 1, "third": "xxx"}) == [
        "second: must be ≥ 2",
        "third: must have at most 2 characters",
    ]


def test_parameters_may_be_of_any_library() -> None:
    def with_structs(order: StructOrder, count: int = 1) -> None: ...
    def with_attrs(order: AttrsOrder | None, orders: list[AttrsOrder], more: DictOrder) -> None: ...

    structs = schema_of(with_structs)
    value = value_of(structs, {"order": {"order_id": "A", "priority": None}, "count": None})
    assert value.named == {"order": StructOrder("A")}
    assert issues_of(structs, {"order": {"order_id": ""}}) == [
        "order.order_id: must have at least 1 character"
    ]
    mixed = schema_of(with_attrs)
    given = {"order": None, "orders": [{"order_id": "A", "due": None}], "more": {"order_id": "B"}}
    assert value_of(mixed, given).named == {
        "order": None,
        "orders": [AttrsOrder("A")],
        "more": {"order_id": "B"},
    }


def test_methods_partials_and_coroutine_functions_are_functions() -> None:
    class Desk:
        def look(self, order_id: str) -> str:
            return order_id

        async def later(self, order_id: str) -> str:
            return order_id

    def two(a: int, b: int) -> int:
        return a + b

    desk = Desk()
    assert value_of(schema_of(desk.look), {"order_id": "A"}).call(desk.look) == "A"
    assert list(schema_of(desk.later).json_schema["properties"]) == ["order_id"]  # type: ignore[call-overload]
    partial = functools.partial(two, b=3)
    assert value_of(schema_of(partial), {"a": 1, "b": None}).call(partial) == 4


def test_a_function_without_parameters_takes_an_empty_object() -> None:
    def nothing() -> int:
        return 1

    schema = schema_of(nothing)
    assert schema.json_schema["properties"] == {}
    assert value_of(schema, {}).call(nothing) == 1


def _bare(x) -> None: ...  # type: ignore[no-untyped-def]
def _stars(*xs: int) -> None: ...
def _words(**xs: int) -> None: ...
def _unknown(x: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (_bare, "the parameter x has no annotation"),
        (_stars, r"\*xs takes anything; name the parameters"),
        (_words, r"\*\*xs takes anything; name the parameters"),
        (_unknown, "signature of _unknown cannot be read"),
    ],
)
def test_a_signature_that_says_too_little_is_refused(function: Any, says: str) -> None:
    with pytest.raises(FormRefused, match=says):
        schema_of(function)


# Details of the libraries.


def test_models_that_are_strict_about_types_still_read_dates_from_json() -> None:
    class Strict(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(strict=True, extra="forbid")
        when: dt.datetime
        name: str = pydantic.Field(alias="theName")

    value = value_of(schema_of(Strict), {"when": "2026-03-01T10:00:00Z", "theName": "x"})
    assert (value.when.year, value.name) == (2026, "x")


def test_generic_types() -> None:
    class Box(pydantic.BaseModel, Generic[T]):
        inside: T

    @attrs.define
    class Crate(Generic[T]):
        inside: T

    class Tin(msgspec.Struct, Generic[T]):
        inside: T

    for form in (Box[int], Crate[int], Tin[int]):
        schema = schema_of(form)
        assert value_of(schema, {"inside": 3}).inside == 3
        assert issues_of(schema, {"inside": "x"}) == ["inside: must be an integer, got a string"]


def test_discriminated_models_survive_and_come_back() -> None:
    schema = schema_of(Payment)
    definitions: Any = schema.json_schema["$defs"]
    assert definitions["Card"]["properties"]["kind"]["const"] == "card"
    assert value_of(schema, {"by": {"kind": "card", "number": None}}) == Payment(by=Card())
    assert value_of(schema, {"by": {"kind": "cash", "number": None}}) == Payment(by=Cash(kind="cash"))
    assert issues_of(schema, {"by": {"kind": "hunter2"}}) == ['by.kind: must be one of "card", "cash"']


def test_attrs_converters_validators_and_names_of_init() -> None:
    def to_cents(amount: float) -> int:
        return round(amount * 100)

    @attrs.frozen
    class Price:
        _cents: int = attrs.field(converter=to_cents, validator=attrs.validators.ge(0))
        code: str = attrs.field(validator=attrs.validators.matches_re("[A-Z]{3}"), default="EUR")

        @code.validator
        def _known(self, attribute: Any, code: str) -> None:
            if code == "XXX":
                raise ValueError(f"currency {code} is not accepted here")

    schema = schema_of(Price)
    properties: Any = schema.json_schema["properties"]
    assert properties["cents"]["type"] == "number"
    assert properties["code"]["pattern"] == "^(?:[A-Z]{3})$"
    assert value_of(schema, {"cents": 1.5, "code": None}) == Price(1.5)
    assert issues_of(schema, {"cents": 1, "code": "XXX"}) == ["(root): currency … is not accepted here"]
    assert issues_of(schema, {"cents": 1, "code": "x"}) == ["code: does not match ^(?:[A-Z]{3})$"]
    assert issues_of(schema, {"cents": -1, "code": "EUR"}) == ["(root): '_cents' must be >= 0"]


def test_msgspec_takes_integral_numbers_and_leaves_unset_what_is_left_out() -> None:
    class Change(msgspec.Struct, forbid_unknown_fields=True):
        count: int
        note: str | msgspec.UnsetType = msgspec.UNSET

    schema = schema_of(Change)
    assert value_of(schema, {"count": 2.0, "note": None}) == Change(2)
    assert issues_of(schema, {"count": 2.5})[0] == "count: must be an integer, got a number with a fraction"
    assert issues_of(schema, {"count": 2, "x": 1}) == ["x: unknown property (known: count, note)"]


def test_tagged_structs_survive_and_come_back() -> None:
    schema = schema_of(Both)
    assert value_of(schema, {"either": {"type": "one", "n": None}}) == Both(One(1))
    assert value_of(schema, {"either": {"type": "two", "n": None}}) == Both(Two(None))


def test_marshmallow_rules_reach_the_model() -> None:
    class Inner(mm.Schema):
        n = mm.fields.Int(
            strict=True, required=True, validate=mm.validate.Range(min=1, max=5, max_inclusive=False)
        )

    class Outer(mm.Schema):
        name = mm.fields.Str(data_key="theName", required=True, validate=mm.validate.Regexp("[a-z]+"))
        inner = mm.fields.Nested(Inner, many=True, validate=mm.validate.Length(max=2))
        pair = mm.fields.Tuple((mm.fields.Str(), mm.fields.Bool()))
        first = mm.fields.Pluck(Inner, "n", allow_none=True)
        seen = mm.fields.Str(dump_only=True)
        mail = mm.fields.Email()

    schema = schema_of(Outer)
    shown: Any = schema.json_schema["properties"]
    assert list(shown) == ["theName", "inner", "pair", "first", "mail"]
    assert shown["theName"] == {"type": "string", "pattern": "^(?:[a-z]+)"}
    assert shown["inner"]["anyOf"][0]["maxItems"] == 2
    definitions: Any = schema.json_schema["$defs"]
    assert definitions["Inner"]["properties"]["n"] == {"type": "integer", "minimum": 1, "exclusiveMaximum": 5}
    assert shown["first"] == {"type": ["integer", "null"], "minimum": 1, "exclusiveMaximum": 5}
    given = {"theName": "a", "inner": [{"n": 2}], "pair": None, "first": None, "mail": None}
    assert value_of(schema, given) == {"name": "a", "inner": [{"n": 2}], "first": None}
    assert issues_of(schema, {"theName": "a", "mail": "hunter2"}) == ["mail: Not a valid email address."]


def test_marshmallow_loads_what_post_load_makes() -> None:
    class Typed(mm.Schema):
        n = mm.fields.Int(required=True)

        @mm.post_load
        def make(self, data: Any, **_: Any) -> DataOrder:
            return DataOrder(str(data["n"]))

    class Row(TypedDict):
        n: int

    class Plain(mm.Schema):
        n = mm.fields.Int(required=True)

    assert value_of(schema_of(from_marshmallow(Typed(), DataOrder)), {"n": 1}) == DataOrder("1")
    assert value_of(schema_of(from_marshmallow(Plain, Row)), {"n": 1}) == {"n": 1}
    with pytest.raises(FormRefused, match="no marshmallow schema"):
        from_marshmallow(3, Row)


def test_a_field_that_nobody_can_describe_is_refused_unless_it_is_described() -> None:
    class Odd(mm.Schema):
        f = mm.fields.Function(deserialize=lambda value: value, required=True)

    class Told(mm.Schema):
        f = mm.fields.Function(
            deserialize=lambda value: value + 1, required=True, metadata={"json_schema": {"type": "integer"}}
        )

    with pytest.raises(FormRefused, match=r"Odd\.f: nothing tells what JSON"):
        schema_of(Odd)
    assert value_of(schema_of(Told), {"f": 1}) == {"f": 2}


# What is no schema.


class _Opaque:
    pass


class _Opening(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    inside: _Opaque


@pytest.mark.parametrize(
    ("form", "error", "says"),
    [
        (int, SchemaRefused, "wrap other values in a property"),
        (list[DataOrder], SchemaRefused, "wrap other values in a property"),
        (FORMS["marshmallow schema"](many=True), SchemaRefused, "wrap other values"),
        (3, FormRefused, "A value of type int is not a schema. Give a pydantic model"),
        (DataOrder("x"), FormRefused, "A value of type DataOrder is not a schema"),
        (_Opaque, FormRefused, "_Opaque cannot be read as a schema"),
        (_Opening, FormRefused, "_Opening has no JSON Schema"),
        (pydantic.TypeAdapter(int), FormRefused, "can validate, by validate_python"),
        (jsonschema.Draft202012Validator({}), FormRefused, "can validate, by validate"),
    ],
)
def test_what_is_no_schema_is_refused(form: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error) as refused:
        schema_of(form)
    assert says in str(refused.value)


def test_free_form_objects_need_strict_off() -> None:
    class Free(pydantic.BaseModel):
        payload: dict[str, int]

    with pytest.raises(SchemaRefused, match=r"schema of Free: .*\(at \$\.properties\.payload\.additional"):
        schema_of(Free)
    schema = schema_of(Free, strict=False)
    assert value_of(schema, {"payload": {"a": 1}}).payload == {"a": 1}
    assert issues_of(schema, {"payload": {"a": "x"}}) == ["payload.a: must be an integer, got a string"]


def test_values_of_all_libraries_become_json() -> None:
    mixed = {"a": AttrsOrder("A"), "s": [StructOrder("S")], "d": DataOrder("D"), "t": dt.date(2026, 1, 2)}
    assert jsonable(mixed) == {
        "a": {"order_id": "A", "priority": "normal", "due": None, "parts": []},
        "s": [{"order_id": "S", "priority": "normal", "due": None, "parts": []}],
        "d": {"order_id": "D", "priority": "normal", "due": None, "parts": []},
        "t": "2026-01-02",
    }
    with pytest.raises(TypeError, match="_Opaque has no JSON form"):
        jsonable(_Opaque())


@dataclasses.dataclass
class Parcel:
    orders: list[StructOrder]
    weight: int = 3


def test_a_dataclass_may_hold_structs() -> None:
    value = value_of(schema_of(Parcel), {"orders": [{"order_id": "A", "due": None}], "weight": None})
    assert value == Parcel([StructOrder("A")])
