"""What cannot work is refused where it is written down, before any request, and the message says why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import pytest
from pydantic import BaseModel, Field

from perdure import (
    Agent,
    DefinitionRefused,
    Failure,
    FormRefused,
    SchemaRefused,
    StandardSchema,
    Success,
    ToolContext,
    ToolResult,
    handoff,
    schema_of,
    tool,
)

OBJECT = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}


class Standard:
    """A StandardSchema by hand."""

    class Contract:
        vendor = "by hand"
        version = 1

        def validate(self, value: Any, /) -> Success[Any] | Failure:
            return Success(value)

        def json_schema_input(self) -> dict[str, Any]:
            return OBJECT

        def json_schema_output(self) -> dict[str, Any]:
            return OBJECT

    @property
    def __standard_schema__(self) -> Contract:
        return self.Contract()


class ValidatesOnly:
    def validate(self, value: object) -> bool:
        return True


class Bounded(BaseModel):
    count: int = Field(ge=1)


def run(value: Any) -> str:
    """Run."""
    return ""


def agent(**options: Any) -> Agent[Any]:
    return Agent(model="m", name="desk", **options)


PLACES: dict[str, Callable[[Any], object]] = {
    "tool": lambda form: tool(run, parameters=form),
    "agent tool": lambda form: agent().as_tool(parameters=form),
    "output type": lambda form: agent(output_type=form),
    "handoff": lambda form: handoff(agent(), input_type=form),
}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
class TestInEveryPlace:
    def test_an_object_that_only_validates_is_refused(self, place: Callable[[Any], object]) -> None:
        with pytest.raises(FormRefused, match="can validate, by validate\\(\\), but a model needs its JSON"):
            place(ValidatesOnly())

    @pytest.mark.parametrize("root", [{"type": "string"}, {"type": "array", "items": {"type": "string"}}])
    def test_a_root_that_is_no_object_is_refused(
        self, place: Callable[[Any], object], root: dict[str, Any]
    ) -> None:
        with pytest.raises(SchemaRefused, match="object"):
            place(root)

    def test_a_construct_that_strict_form_cannot_express_is_refused_with_its_path(
        self, place: Callable[[Any], object]
    ) -> None:
        form = {
            "type": "object",
            "properties": {"a": {"type": "object", "patternProperties": {"^x": {"type": "string"}}}},
        }
        with pytest.raises(SchemaRefused) as refused:
            place(form)
        assert refused.value.path.startswith("$.properties.a")

    def test_a_standard_schema_is_taken(self, place: Callable[[Any], object]) -> None:
        place(Standard())

    def test_json_schema_is_taken(self, place: Callable[[Any], object]) -> None:
        place(OBJECT)


def test_a_standard_schema_is_never_loose() -> None:
    with pytest.raises(FormRefused, match="strict"):
        tool(run, parameters=Standard(), strict=False)


def test_a_type_may_be_loose() -> None:
    loose = tool(run, parameters=Bounded, strict=False)
    assert "additionalProperties" not in loose.definition["parameters"]
    assert tool(run, parameters=Bounded).definition["parameters"]["additionalProperties"] is False


def test_rules_of_a_type_reach_the_model() -> None:
    assert tool(run, parameters=Bounded).definition["parameters"]["properties"]["count"]["minimum"] == 1


@pytest.mark.parametrize("form", [Standard(), schema_of(Standard())])
def test_the_schema_of_a_result_is_no_standard_schema(form: StandardSchema[Any, Any]) -> None:
    refused: Any = form
    with pytest.raises(FormRefused, match="output_schema takes a Python type or JSON Schema"):
        tool(run, parameters=OBJECT, output_schema=refused)


def test_json_schema_is_only_parsed() -> None:
    parsed = tool(run, parameters=OBJECT)
    assert parsed.parse('{"a": 5}') == Success({"a": 5})
    assert isinstance(parsed.parse('{"a": '), Failure)
    checked = tool(run, parameters=schema_of(OBJECT, validate=True))
    assert isinstance(checked.parse('{"a": 5}'), Failure)


def test_an_answer_in_json_schema_is_only_parsed() -> None:
    schema = agent(output_type=OBJECT).output_schema
    assert schema is not None
    assert schema.parse_output('{"a": 5}') == Success({"a": 5})


def test_a_definition_is_what_the_protocol_takes() -> None:
    @tool(name="ship", background=True, defer_loading=True)
    def later(order_id: str, count: int = 1, *, context: ToolContext) -> None:
        """Ship an order.

        Not for the model.
        """

    definition = later.definition
    assert definition["description"] == "Ship an order."
    assert (definition["type"], definition["name"]) == ("function", "ship")
    assert (definition["async"], definition["defer_loading"]) == (True, True)
    assert sorted(definition["parameters"]["properties"]) == ["count", "order_id"]


def test_a_tool_can_be_called_like_its_function() -> None:
    @tool
    def add(a: int, b: int = 2) -> int:
        """Add."""
        return a + b

    assert add(1) == 3


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: tool(lambda value: value, parameters=OBJECT), "is no name for a tool"),
        (lambda: tool(run, parameters=OBJECT, name="a b"), "is no name for a tool"),
        (lambda: tool(lambda value: value, parameters=OBJECT, name="x"), "no description"),
        (lambda: tool(run, parameters=OBJECT, timeout=0), "timeout is in seconds"),
        (lambda: tool(run, parameters=OBJECT, on_unknown="retry"), "needs idempotent=True"),
        (lambda: handoff(agent(), on_handoff=print, on_unknown="retry"), "needs idempotent=True"),
        (Agent, "has no model"),
        (lambda: Agent(agent_id="agent_1", model="m"), "configured there; leave out model"),
        (lambda: agent(tools=[{"type": "function", "name": "f"}]), "nothing here that answers its calls"),
        (lambda: agent(tools=[run]), "Functions become tools with tool"),
        (lambda: agent(tools=[agent()]), "as as_tool"),
        (lambda: agent(tools=[tool(run, parameters=OBJECT)] * 2), "two tools called run"),
        (lambda: agent(handoffs=[agent(), agent()]), "two tools called transfer_to_desk"),
        (
            lambda: agent(output_type=OBJECT, text={"format": {"type": "text"}}),
            "output_type, or a format in text, not both",
        ),
        (lambda: agent().as_tool(input_builder=str), "input_builder needs parameters"),  # type: ignore[call-overload]
    ],
)
def test_what_cannot_work_is_refused(make: Callable[[], object], reason: str) -> None:
    with pytest.raises(DefinitionRefused, match=reason):
        make()


@pytest.mark.parametrize("member", ["tools", "agents"])
def test_functions_for_subagents_are_refused_and_explained(member: str) -> None:
    with pytest.raises(DefinitionRefused, match="function tools stay with the main agent"):
        agent(multi_agent={"enabled": True, member: [tool(run, parameters=OBJECT)]})
    agent(multi_agent={"enabled": True, "max_concurrent_subagents": 3})


def test_settings_of_an_agent_are_passed_on() -> None:
    made = agent(
        instructions="Be brief.",
        reasoning={"effort": "low"},
        text={"verbosity": "low"},
        output_type=Bounded,
        tools=[{"type": "web_search"}, tool(run, parameters=OBJECT)],
        handoffs=[Agent(name="Billing specialist", model="m")],
    ).configuration
    assert made["text"]["verbosity"] == "low"
    assert made["text"]["format"]["schema"]["properties"]["count"]["minimum"] == 1
    assert made["reasoning"] == {"effort": "low"}
    assert [each.get("name", each["type"]) for each in made["tools"]] == [
        "web_search",
        "run",
        "transfer_to_billing_specialist",
    ]


class Order(msgspec.Struct):
    order_id: Annotated[str, msgspec.Meta(min_length=1)]


@pytest.mark.parametrize(
    ("value", "output"),
    [
        ("text", "text"),
        (None, None),
        ({"a": [1, None]}, '{"a":[1,null]}'),
        ([], "[]"),
        (["ü"], '["ü"]'),
        (3, "3"),
        (False, "false"),
        (Order("A-1042"), '{"order_id":"A-1042"}'),
        ([{"type": "input_text", "text": "x"}], [{"type": "input_text", "text": "x"}]),
    ],
)
def test_what_a_tool_returns_goes_out_as_text_or_content(value: Any, output: Any) -> None:
    assert tool(run, parameters=OBJECT).result(value) == ToolResult(True, output)


@pytest.mark.parametrize("value", [float("nan"), object(), {"a": {1, object()}}, "\ud800"])
def test_what_has_no_json_form_is_told_without_the_value(value: Any) -> None:
    from perdure.sdk.errors import OutputInvalid

    with pytest.raises(OutputInvalid, match=r"^The tool run returned"):
        tool(run, parameters=OBJECT).result(value)


def test_a_result_is_held_against_its_schema() -> None:
    from perdure.sdk.errors import OutputInvalid

    checked = tool(run, parameters=OBJECT, output_schema=Order)
    assert checked.result(Order("A-1042")).output == '{"order_id":"A-1042"}'
    assert checked.result('{"order_id": "A-1042"}').output == '{"order_id":"A-1042"}'
    for wrong in (Order(""), {"order": "A-1042"}, '{"order_id": "A-10', 5):
        with pytest.raises(
            OutputInvalid, match="The result of run does not match its output schema"
        ) as error:
            checked.result(wrong)
        assert "A-1042" not in str(error.value)
    parsed = tool(run, parameters=OBJECT, output_schema=OBJECT)
    assert parsed.result({"a": 5}).output == '{"a":5}'
