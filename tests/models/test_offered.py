"""Functions with names, properties and schemas that providers refuse are offered, called and replayed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.models.wires import WIRES, Wire, ask, calls_of, collect, entries_of, fail, user
from tests.providers.answers import Call, Refusal, Text, answer
from tests.providers.anthropic import AnthropicProvider
from tests.providers.gemini_rules import ModelRules
from tests.providers.rules import NAME

from perdure.models.anthropic import AnthropicModel
from perdure.models.messages import CallDone, Entry, FunctionCall, FunctionResult, FunctionSpec
from perdure.models.offered import Offered, OfferRules

NAMES = [
    "weather.look_up",
    "weather look_up",
    "wetter/nachschlagen",
    "天気",
    "x" * 70,
    "x" * 70 + "y",
    "9_lives",
    "a" * 128,
]
HOSTILE = {
    "type": "object",
    "properties": {
        "filter[name]": {"type": "string"},
        "$top": {"type": "integer"},
        "user name": {"type": "object", "properties": {"@id": {"type": "string"}}, "required": ["@id"]},
        "n" * 70: {"type": "string"},
        "plain": {"$ref": "#/properties/user%20name/properties/@id"},
        "any": {"type": "object"},
    },
    "required": ["filter[name]", "plain"],
    "dependentRequired": {"$top": ["filter[name]"]},
    "examples": [{"$top": 1}],
}
ARGUMENTS = {
    "filter[name]": "x",
    "$top": 3,
    "user name": {"@id": "u1"},
    "n" * 70: "long",
    "plain": "p",
    "any": {"top": 1, "$other": 2},
}
PLAIN = OfferRules(plain_properties=True)


def declared(body: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """Name, description and schema of every function of a request."""
    told = []
    for tool in body["tools"]:
        for function in tool.get("functionDeclarations") or [tool.get("function", tool)]:
            keys = ("parameters", "input_schema", "parametersJsonSchema")
            schema = next(function[key] for key in keys if key in function)
            told.append((function["name"], function.get("description", ""), schema))
    return told


@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
async def test_functions_keep_their_own_names_here(wire: Wire) -> None:
    """Whatever a function is called, the model can call it, and the session goes on."""
    tools = tuple(FunctionSpec(name, "", {}) for name in NAMES)
    async with wire.provider() as provider:
        model = wire.model(provider.settings())
        history: list[Entry] = [user()]
        await collect(model, ask(*history, tools=tools))
        names = [name for name, _, _ in declared(provider.requests[-1].body)]
        assert len(set(names)) == len(NAMES)
        assert all(NAME.fullmatch(name) for name in names)
        for ours, theirs in zip(NAMES, names, strict=True):
            provider.queue(answer(Call(theirs)))
            step = entries_of(await collect(model, ask(*history, tools=tools)))
            (call,) = [entry for entry in step if isinstance(entry, FunctionCall)]
            assert call.name == ours
            history += [*step, FunctionResult(call.call_id, "done")]
        await collect(model, ask(*history, user("Go on."), tools=tools))
        await collect(model, ask(*history, user("Go on.")))
        assert provider.violations == []
        await model.close()


async def test_properties_keep_their_own_names_here() -> None:
    tools = (FunctionSpec("look.up", "Looks up.", HOSTILE),)
    async with AnthropicProvider() as provider:
        model = AnthropicModel(provider.settings())
        history: list[Entry] = [user()]
        await collect(model, ask(*history, tools=tools))
        (name, description, schema) = declared(provider.requests[-1].body)[0]
        offered = Offered(tools, PLAIN)
        assert (name, schema) == (offered.tools[0].name, offered.tools[0].parameters)
        assert '"filter[name]"' in description
        theirs = offered.arguments("look.up", json.dumps(ARGUMENTS))
        assert "$top" not in theirs
        provider.queue(answer(Call(name, theirs)))
        step = entries_of(await collect(model, ask(*history, tools=tools)))
        (call,) = [entry for entry in step if isinstance(entry, FunctionCall)]
        assert json.loads(call.arguments) == ARGUMENTS
        history += [*step, FunctionResult(call.call_id, "done")]
        await collect(model, ask(*history, tools=tools))
        blocks = provider.requests[-1].body["messages"][1]["content"]
        assert blocks[0]["input"] == json.loads(theirs)
        assert provider.violations == []
        await model.close()


def test_all_places_of_a_schema_speak_of_the_same_property() -> None:
    (spec,) = Offered((FunctionSpec("f", "", HOSTILE),), PLAIN).tools
    schema = spec.parameters
    top = next(name for name in schema["properties"] if name.startswith("top_"))
    named = next(name for name in schema["properties"] if name.startswith("filter_name_"))
    nested = next(name for name in schema["properties"] if name.startswith("user_name_"))
    inner = next(iter(schema["properties"][nested]["properties"]))
    assert schema["required"] == [named, "plain"]
    assert schema["dependentRequired"] == {top: [named]}
    assert schema["examples"] == [{top: 1}]
    assert schema["properties"][nested]["required"] == [inner]
    assert schema["properties"]["plain"] == {"$ref": f"#/properties/{nested}/properties/{inner}"}


@given(st.dictionaries(st.text(max_size=80), st.integers() | st.text(), max_size=6))
@settings(max_examples=200)
def test_arguments_come_back_as_they_were(arguments: dict[str, Any]) -> None:
    spec = FunctionSpec("f", "", {"type": "object", "properties": {name: {} for name in arguments}})
    offered = Offered((spec,), PLAIN)
    sent = offered.arguments("f", json.dumps(arguments))
    assert set(json.loads(sent)) == set(offered.tools[0].parameters["properties"])
    back = offered.ours(CallDone(0, "f", sent))
    assert isinstance(back, CallDone)
    assert json.loads(back.arguments) == arguments


def test_names_that_are_accepted_change_nothing() -> None:
    offered = Offered((FunctionSpec("f", "", {"properties": {"a.b-c_1": {}}}),), PLAIN)
    assert offered.changed == frozenset()
    done = CallDone(0, "f", '{"a.b-c_1": 1}')
    assert offered.ours(done) is done
    assert offered.arguments("f", done.arguments) is done.arguments


def test_broken_arguments_stay_as_they_are() -> None:
    offered = Offered((FunctionSpec("f", "", HOSTILE),), PLAIN)
    for text in ('{"$top": ', "[1", "no JSON, $top", '{"$top": 1e999}'):
        assert offered.arguments("f", text) == text


def test_a_name_never_takes_that_of_another_function() -> None:
    tools = tuple(FunctionSpec(name, "", {}) for name in ("a.b", "a_b", "a b"))
    offered = Offered(tools, OfferRules())
    names = [spec.name for spec in offered.tools]
    assert names[1] == "a_b"
    assert len(set(names)) == 3
    assert [offered.ours(CallDone(0, name, "{}")) for name in names] == [
        CallDone(0, spec.name, "{}") for spec in tools
    ]


@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"items": {"type": "array"}}, {"items": {"type": "array", "items": {}}}),
        (
            {"pair": {"type": "array", "items": [{"type": "string"}], "additionalItems": False}},
            {"pair": {"type": "array", "prefixItems": [{"type": "string"}], "items": False}},
        ),
        (
            {"n": {"type": "number", "minimum": 0, "exclusiveMinimum": True}},
            {"n": {"type": "number", "exclusiveMinimum": 0}},
        ),
        (
            {"n": {"type": "number", "maximum": 9, "exclusiveMaximum": False}},
            {"n": {"type": "number", "maximum": 9}},
        ),
        (
            {"o": {"type": "object", "dependencies": {"a": ["b"], "c": {"required": ["d"]}}}},
            {
                "o": {
                    "type": "object",
                    "dependentRequired": {"a": ["b"]},
                    "dependentSchemas": {"c": {"required": ["d"]}},
                }
            },
        ),
    ],
)
async def test_schemas_of_older_drafts_are_sent_in_the_newest(
    wire: Wire, given: dict[str, Any], sent: dict[str, Any]
) -> None:
    schema = {"$schema": "http://json-schema.org/draft-04/schema#", "type": "object", "properties": given}
    async with wire.provider() as provider:
        model = wire.model(provider.settings())
        await collect(model, ask(tools=(FunctionSpec("f", "", schema),)))
        assert declared(provider.requests[0].body)[0][2] == {"type": "object", "properties": sent}
        assert provider.violations == []
        await model.close()


@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
async def test_a_reference_at_the_root_is_followed(wire: Wire) -> None:
    order = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}
    async with wire.provider() as provider:
        model = wire.model(provider.settings())
        schema = {"$ref": "#/$defs/order", "$defs": {"order": order}}
        await collect(model, ask(tools=(FunctionSpec("f", "", schema),)))
        told = declared(provider.requests[0].body)[0][2]
        assert {**told, "$defs": None} == {**order, "$defs": None}
        assert provider.violations == []
        await model.close()


@pytest.mark.parametrize("name", ["responses", "chat", "anthropic"])
@pytest.mark.parametrize("word", ["anyOf", "oneOf", "allOf", "not", "enum"])
async def test_a_choice_at_the_root_is_told_in_words(name: str, word: str) -> None:
    wire = WIRES[name]
    choice: Any = {"required": ["a"]} if word == "not" else [{"required": ["a"]}]
    schema = {"type": "object", "properties": {"a": {}}, word: choice}
    async with wire.provider() as provider:
        model = wire.model(provider.settings())
        await collect(model, ask(tools=(FunctionSpec("f", "Does it.", schema),)))
        (_, description, told) = declared(provider.requests[0].body)[0]
        assert word not in told
        assert description.startswith("Does it.\n\n")
        assert f'"{word}":' in description
        assert provider.violations == []
        await model.close()


@pytest.mark.parametrize("name", ["responses", "chat", "gemini"])
async def test_property_names_that_a_gateway_refuses_are_renamed_from_then_on(name: str) -> None:
    said = (
        "tools.0.custom.input_schema.properties: Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'"
    )
    wire, tools = WIRES[name], (FunctionSpec("f", "", HOSTILE),)
    async with wire.provider() as provider:
        model = wire.model(provider.settings())
        provider.queue(Refusal(400, message=said))
        _, error = await fail(model, ask(tools=tools))
        assert error.retryable
        assert "$top" in declared(provider.requests[0].body)[0][2]["properties"]
        theirs = Offered(tools, PLAIN).arguments("f", json.dumps(ARGUMENTS))
        provider.queue(answer(Call("f", theirs)))
        ((_, arguments),) = calls_of(await collect(model, ask(tools=tools)))
        assert json.loads(arguments) == ARGUMENTS
        assert "$top" not in declared(provider.requests[1].body)[0][2]["properties"]
        # There is one more way to say it, and then none.
        provider.queue(Refusal(400, message=said), Refusal(400, message=said))
        assert (await fail(model, ask(tools=tools)))[1].retryable
        assert not (await fail(model, ask(tools=tools)))[1].retryable
        await model.close()


SCHEMA_REFUSALS = {
    "responses": "Invalid schema for function 'g': the schema is not to our liking.",
    "chat": "Invalid schema for function 'g': the schema is not to our liking.",
    "anthropic": "tools.1.custom.input_schema: JSON schema is invalid. It must match draft 2020-12",
    "gemini": "* GenerateContentRequest.tools[0].function_declarations[1].parameters.properties[a]: odd",
}


@pytest.mark.parametrize("name", WIRES)
async def test_a_schema_that_is_refused_is_told_in_words_from_then_on(name: str) -> None:
    """Whatever the reason: the other functions stay as they are, and calls are checked all the same."""
    wire, odd = WIRES[name], {"type": "object", "properties": {"odd": {"type": "string"}}}
    even = {"type": "object", "properties": {"even": {"type": "string"}}}
    tools = (FunctionSpec("f", "", even), FunctionSpec("g", "Does g.", odd))
    refusals = 2 if name == "gemini" else 1  # it has another form of schemas to try first
    rules = {} if name != "gemini" else {"rules": ModelRules(json_schema=False)}
    async with wire.provider(**rules) as provider:
        model = wire.model(provider.settings())
        provider.queue(Refusal(400, message=SCHEMA_REFUSALS[name]))
        for _ in range(refusals):
            assert (await fail(model, ask(tools=tools)))[1].retryable
        await collect(model, ask(tools=tools))
        assert len(provider.violations) == refusals - 1
        functions = str(provider.requests[-1].body["tools"])
        assert "'even'" in functions
        assert "'odd'" not in functions
        assert "Does g.\\n\\nThe input must match this JSON Schema: {" in functions
        await model.close()


OUTPUT_REFUSALS = {
    "responses": "Invalid schema for response_format 'output': too many properties.",
    "chat": "Invalid schema for response_format 'output': too many properties.",
    "anthropic": "The compiled grammar is too large, which would cause performance issues.",
    "gemini": "The specified response_schema produces a constraint that has too many states.",
}


@pytest.mark.parametrize("name", WIRES)
async def test_an_output_schema_that_is_refused_is_asked_for_in_words_from_then_on(name: str) -> None:
    wire = WIRES[name]
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    request = ask(model="claude-opus-5-5", output_schema=schema)
    refusals = 2 if name == "gemini" else 1
    rules = {} if name != "gemini" else {"rules": ModelRules(json_schema=False)}
    async with wire.provider(**rules) as provider:
        model = wire.model(provider.settings())
        provider.queue(Refusal(400, message=OUTPUT_REFUSALS[name]))
        for _ in range(refusals):
            assert (await fail(model, request))[1].retryable
        await collect(model, request)
        assert "Your final answer must be one JSON document" in str(provider.requests[-1].body)
        assert "'schema'" not in str(provider.requests[-1].body)
        other = ask(model="claude-opus-5-5", output_schema={**schema, "title": "Other"})
        await collect(model, other)
        assert "Your final answer" not in str(provider.requests[-1].body)
        assert len(provider.violations) == refusals - 1
        await model.close()


@pytest.mark.parametrize("name", ["responses", "chat"])
async def test_descriptions_that_are_too_long_go_on_elsewhere(name: str) -> None:
    said = (
        "Invalid 'tools[0].function.description': string too long. Expected a string with maximum length"
        " 1024, but got a string with length 3000 instead."
    )
    wire, words = WIRES[name], "word " * 600
    async with wire.provider() as provider:
        model = wire.model(provider.settings())
        provider.queue(Refusal(400, message=said), answer(Text("ok")))
        tools = (FunctionSpec("f", words, {}),)
        assert (await fail(model, ask(tools=tools)))[1].retryable
        await collect(model, ask(tools=tools))
        (_, description, schema) = declared(provider.requests[1].body)[0]
        assert len(description) == 1024
        assert schema["description"] == words
        assert provider.violations == []
        await model.close()
