"""The check for authors of adapters: the adapters here pass it, and each way to be wrong is found."""

from __future__ import annotations

from typing import Any

import pytest
from tests.schema.orders import FORMS, MarshmallowOrder
from tests.schema.test_standard import JSON, WeightContract, Weights

from perdure.schema import AdapterFault, Failure, Issue, Success, check_adapter, from_marshmallow, schema_of

VALID: list[dict[str, Any]] = [
    {"order_id": "A"},
    {"order_id": "A", "priority": "urgent", "due": "2026-03-01", "parts": [{"order_id": "B"}]},
]
INVALID: list[dict[str, Any]] = [
    {},
    {"order_id": 3},
    {"order_id": "A", "priority": "none"},
    {"order_id": "A", "parts": [{"order_id": "A"}, {}]},
]


class _Adapted:
    """The contract that a form gets here, as an object of its own."""

    def __init__(self, form: Any) -> None:
        self.__standard_schema__ = schema_of(form)._contract


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_the_adapters_here_conform(form: Any) -> None:
    check_adapter(_Adapted(form), valid=VALID, invalid=INVALID)


def test_typed_marshmallow_and_handwritten_schemas_conform() -> None:
    check_adapter(from_marshmallow(MarshmallowOrder, dict), valid=VALID, invalid=INVALID)
    check_adapter(Weights(), valid=[{"n": 1}, {"n": 1, "unit": "g"}], invalid=[{}, {"n": "x"}])


def faults(contract: Any, *, valid: Any = ({"n": 1},), invalid: Any = ({"n": "x"},)) -> str:
    with pytest.raises(AdapterFault) as fault:
        check_adapter(Weights(contract), valid=valid, invalid=invalid)
    assert fault.value.faults
    return str(fault.value)


def judge(value: Any) -> Any:
    return WeightContract().validate(value)


class _Changing(WeightContract):
    def json_schema_input(self) -> dict[str, Any]:
        self.count = getattr(self, "count", 0) + 1
        return JSON | {"title": str(self.count)}


class _Undescribed(WeightContract):
    def json_schema_output(self) -> dict[str, Any]:
        return {"type": "object", "properties": {"n": {"type": "string"}}}


class _Broken(WeightContract):
    def json_schema_output(self) -> dict[str, Any]:
        return {"type": "strange"}


class _Raising(WeightContract):
    def validate(self, value: Any, /) -> Any:
        return judge(value) if isinstance(value, dict) else value.get("n")


class _Writing(WeightContract):
    def validate(self, value: Any, /) -> Any:
        if isinstance(value, dict):
            value.setdefault("unit", "kg")
        return judge(value)


class _Dumping(WeightContract):
    def dump(self, value: Any) -> Any:
        return {"n": 1, "unit": value}


def _answering(answer: Any) -> WeightContract:
    return WeightContract(lambda value: answer if value == {"n": "x"} else judge(value))


@pytest.mark.parametrize(
    ("contract", "says"),
    [
        (object(), "is not a complete StandardSchema"),
        (_Changing(), "json_schema_input() returns something else each time"),
        (_Undescribed(), "valid[0]: json_schema_output() does not describe the validated value: n:"),
        (_Broken(), "json_schema_output(): Invalid schema"),
        (_Raising(), "validate(None): The validator of by hand raised AttributeError"),
        (_Writing(), "valid[0]: validate() changes the value it is given"),
        (_Dumping(), "valid[0]: json_schema_output() does not describe"),
        (WeightContract(lambda value: Failure([Issue("no", ())])), "valid[0]: is rejected: (root): no"),
        (_answering(Success(1)), "invalid[0]: is accepted"),
        (_answering(Failure([Issue(" ")])), "invalid[0]: an issue has no message"),
        (_answering(Failure([Issue("m", ["n"])])), "invalid[0]: the path of an issue is not a tuple"),  # type: ignore[arg-type]
        (_answering(Failure([Issue("m", ("a", "b"))])), "invalid[0]: the path of an issue leads nowhere"),
        (_answering(Failure([])), "invalid[0]: The validator of by hand returned a Failure without issues"),
        (WeightContract(document={"type": "string"}), "wrap other values in a property"),
    ],
)
def test_a_fault_is_found(contract: Any, says: str) -> None:
    assert says in faults(contract)


def test_a_value_that_only_the_validator_accepts_is_found() -> None:
    text = faults(WeightContract(lambda value: Success({"n": 1, "unit": "g"})), valid=[{"n": "1"}])
    assert "valid[0]: validate() accepts it, json_schema_input() does not: n:" in text


def test_the_check_wants_examples() -> None:
    assert "at least one valid and one invalid" in faults(WeightContract(), valid=[])


def test_every_fault_is_told_at_once() -> None:
    text = faults(_Writing(), valid=[{"n": 1}, {"n": "x"}], invalid=[{"n": 1}])
    assert [line.partition(":")[0] for line in text.splitlines()[1:]] == [
        "- valid[0]",
        "- valid[1]",
        "- valid[1]",
        "- invalid[0]",
    ]
