"""What Anthropic's Messages API is asked, and how a refusal is learnt from."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.models.wires import LOOKUP, ask, call_ids, collect, entries_of, fail, user
from tests.providers.answers import Call, Refusal, Text, Thought, answer
from tests.providers.anthropic import AnthropicProvider

from perdure.models.anthropic import AnthropicModel
from perdure.models.anthropic_models import UNKNOWN, family_of
from perdure.models.anthropic_schema import fits_output_format
from perdure.models.messages import (
    AssistantMessage,
    Entry,
    FunctionCall,
    FunctionResult,
    FunctionSpec,
    ImagePart,
    ModelRequest,
    ServerNote,
    TextPart,
    UserMessage,
)
from perdure.models.outgoing import NOTE_END, NOTE_START

CLOSED: dict[str, Any] = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
    "additionalProperties": False,
}
PIXEL = "R0lGODlhAQABAAAAACw="
CACHED = {"type": "ephemeral"}
OPUS, SONNET, OLD = "claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-4-5"


async def sent(request: ModelRequest, **settings: Any) -> dict[str, Any]:
    """The body of a request that the strict provider accepted."""
    async with AnthropicProvider() as provider:
        model = AnthropicModel(provider.settings(**settings))
        await collect(model, request)
        await model.close()
        assert provider.violations == []
        return provider.requests[0].body


def results(entries: list[Entry], content: Any = "shipped") -> list[Entry]:
    return [FunctionResult(call_id, content) for call_id in call_ids(entries)]


def thoughts_in(body: dict[str, Any]) -> list[str]:
    blocks = [block for message in body["messages"] for block in message["content"]]
    return [block.get("thinking", "") for block in blocks if "thinking" in block["type"]]


# ---- options -----------------------------------------------------------------------------------


async def test_a_plain_request_says_only_what_it_must() -> None:
    assert await sent(ask()) == {
        "model": "test-model",
        "max_tokens": 32_000,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": CACHED}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Hello", "cache_control": CACHED}]}
        ],
        "stream": True,
    }


async def test_the_key_and_the_version_are_headers() -> None:
    async with AnthropicProvider() as provider:
        model = AnthropicModel(provider.settings(headers={"anthropic-beta": "some-beta-2026-01-01"}))
        await collect(model)
        headers = provider.requests[0].headers
        assert headers["x-api-key"] == "test-key"
        assert headers["anthropic-version"] == "2026-10-21"
        assert headers["anthropic-beta"] == "some-beta-2026-01-01"
        assert "Authorization" not in headers
        await model.close()


async def test_every_option() -> None:
    body = await sent(
        ask(
            model=OPUS,
            tools=(LOOKUP,),
            output_schema=CLOSED,
            effort="xhigh",
            summary="auto",
            verbosity="low",
            service_tier="fast",
            cache_ttl="12h",
            cache_key="sess_1",
        )
    )
    kept = {"type": "ephemeral", "ttl": "1h"}
    assert body["max_tokens"] == 128_000
    assert body["tools"] == [
        {
            "name": "lookup_order",
            "description": "Look an order up.",
            "input_schema": LOOKUP.parameters,
            "cache_control": kept,
        }
    ]
    (system,) = body["system"]
    assert system["text"].startswith("Be brief.\n\nKeep your answers short")
    assert system["cache_control"] == kept
    assert body["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert body["output_config"] == {"effort": "xhigh", "format": {"type": "json_schema", "schema": CLOSED}}
    assert body["speed"] == "fast"
    assert body["messages"][0]["content"][0]["cache_control"] == kept


@pytest.mark.parametrize(
    ("tier", "field", "value"),
    [
        ("auto", "service_tier", None),
        ("default", "service_tier", "standard_only"),
        ("priority", "service_tier", "auto"),
        ("ultrafast", "speed", "fast"),
        ("flex", "service_tier", None),
    ],
)
async def test_service_tiers(tier: str, field: str, value: str | None) -> None:
    assert (await sent(ask(model=OPUS, service_tier=tier))).get(field) == value


@pytest.mark.parametrize(
    ("model", "options", "thinking", "effort"),
    [
        (OPUS, {}, None, None),
        (OPUS, {"effort": "none"}, None, None),
        (OPUS, {"effort": "max"}, {"type": "adaptive"}, "max"),
        (OPUS, {"summary": "concise"}, {"type": "adaptive", "display": "summarized"}, None),
        (SONNET, {"effort": "none"}, {"type": "between_tools"}, None),
        ("claude-haiku-5-5", {"effort": "none", "summary": "auto"}, {"type": "disabled"}, None),
        ("claude-opus-4-8", {}, None, None),
        ("claude-opus-4-8", {"effort": "none"}, None, None),
        ("claude-opus-4-8", {"effort": "low"}, {"type": "adaptive"}, "low"),
        (OLD, {}, None, None),
        (OLD, {"effort": "none"}, None, None),
        (OLD, {"effort": "low"}, {"type": "enabled", "budget_tokens": 4096}, None),
        (
            OLD,
            {"summary": "auto"},
            {"type": "enabled", "budget_tokens": 12_288, "display": "summarized"},
            None,
        ),
        ("claude-3-5-haiku-latest", {"effort": "high"}, None, None),
        ("my-own", {}, None, None),
        ("my-own", {"effort": "none"}, {"type": "disabled"}, None),
        ("my-own", {"effort": "minimal"}, {"type": "adaptive"}, "low"),
    ],
)
async def test_thinking_by_family(
    model: str, options: dict[str, Any], thinking: Any, effort: str | None
) -> None:
    body = await sent(ask(model=model, **options))
    assert body.get("thinking") == thinking
    assert body.get("output_config", {}).get("effort") == effort


async def test_a_budget_stays_below_the_longest_answer() -> None:
    small = {"max_output_tokens": 4000}
    body = await sent(ask(model=OLD, effort="high"), **small)
    assert body["thinking"]["budget_tokens"] == 4000 - 1024
    assert "thinking" not in await sent(ask(model=OLD, effort="high"), max_output_tokens=1500)


@pytest.mark.parametrize(
    ("name", "window", "output"),
    [
        ("claude-fable-5-2", 1_000_000, 128_000),
        ("claude-mythos-preview", 1_000_000, 128_000),
        ("us.anthropic.claude-opus-5", 1_000_000, 128_000),
        ("claude-sonnet-4-6", 1_000_000, 64_000),
        ("claude-sonnet-4-5-20250929", 200_000, 64_000),
        ("claude-opus-4-20250514", 200_000, 32_000),
        ("anthropic/claude-sonnet-4.5", 200_000, 64_000),
        ("claude-3-haiku-20240307", 200_000, 4096),
        ("claude-opus-7", None, 64_000),
        ("glm-6", None, 32_000),
    ],
)
def test_families(name: str, window: int | None, output: int) -> None:
    family = family_of(name)
    assert (family.context_window, family.max_output_tokens) == (window, output)
    assert (family == UNKNOWN) == ("claude" not in name)


# ---- the cache ---------------------------------------------------------------------------------


async def test_breakpoints_stand_where_the_requests_before_ended() -> None:
    history: list[Entry] = [user("One.")]
    async with AnthropicProvider() as provider:
        model = AnthropicModel(provider.settings())
        provider.queue(*(answer(Call("f", {"n": n}), Call("f", {"n": -n})) for n in range(4)))
        for _ in range(4):
            step = entries_of(await collect(model, ask(*history, tools=(LOOKUP,))))
            history += [*step, *results(step)]
        for request, before in zip(provider.requests[1:], provider.requests, strict=False):
            marked = [
                (index, len(message["content"]))
                for index, message in enumerate(request.body["messages"])
                if "cache_control" in message["content"][-1]
            ]
            assert marked[-1][0] == len(request.body["messages"]) - 1
            assert marked[-2][0] == len(before.body["messages"]) - 1
        assert provider.violations == []
        await model.close()


async def test_a_server_without_breakpoints_gets_none() -> None:
    words = "messages.0.content.0.cache_control: Extra inputs are not permitted"
    async with AnthropicProvider(Refusal(400, message=words)) as provider:
        model = AnthropicModel(provider.settings())
        _, error = await fail(model)
        assert error.retryable
        await collect(model)
        await collect(model, ask(model="another"))
        assert ["cache_control" in str(request.body) for request in provider.requests] == [True, False, True]
        await model.close()


async def test_the_longest_answer_is_learnt() -> None:
    words = "max_tokens: 32000 > 8192, which is the maximum allowed number of output tokens for small"
    async with AnthropicProvider(Refusal(400, message=words), Refusal(400, message=words)) as provider:
        model = AnthropicModel(provider.settings())
        _, error = await fail(model)
        assert error.retryable
        _, error = await fail(model)
        assert not error.retryable, "the limit did not help"
        await collect(model)
        assert [request.body["max_tokens"] for request in provider.requests] == [32_000, 8192, 8192]
        await model.close()


# ---- tools -------------------------------------------------------------------------------------


async def test_a_choice_between_whole_inputs_is_told_in_words() -> None:
    choices = [{"required": ["a"]}, {"required": ["b"]}]
    parameters = {"type": "object", "properties": {"a": {}, "b": {}}, "anyOf": choices}
    body = await sent(ask(tools=(FunctionSpec("f", "", parameters), FunctionSpec("g", "Do.", parameters))))
    first, second = body["tools"]
    assert "anyOf" not in first["input_schema"]
    assert '{"anyOf":[{"required":["a"]},{"required":["b"]}]}' in first["description"]
    assert second["description"].startswith("Do.\n\n")


async def test_calls_of_the_past_are_read_without_tools_of_now() -> None:
    calls = [FunctionCall(call_id, "lookup_order", "{}") for call_id in ("call_1", "call_2")]
    answers = [FunctionResult(call.call_id, "shipped") for call in calls]
    body = await sent(ask(user(), *calls, *answers, user("Well?")))
    (tool,) = body["tools"]
    assert tool["name"] == "lookup_order"
    assert body["tool_choice"] == {"type": "none"}


# ---- messages ----------------------------------------------------------------------------------


async def test_the_messages_of_a_request() -> None:
    async with AnthropicProvider(
        answer(Thought(("Hm.",)), Text("Look."), Call("lookup_order", {"order_id": "A-1"}, id="toolu_1"))
    ) as provider:
        model = AnthropicModel(provider.settings())
        step = entries_of(await collect(model))
        picture = ImagePart(f"data:image/gif;base64,{PIXEL}")
        history: list[Entry] = [
            user(),
            *step,
            *results(step, (TextPart("shipped"), picture)),
            UserMessage((TextPart("See"), ImagePart("https://example.com/a.png"))),
            ServerNote((TextPart("Late."),)),
            AssistantMessage("Thanks. "),
            FunctionCall("call_é", "no such", "[1]"),
            FunctionResult("call_é", "No.", failed=True),
        ]
        await collect(model, ask(*history, tools=(LOOKUP,)))
        await model.close()
        assert provider.violations == []
        messages = provider.requests[1].body["messages"]
    signature = messages[1]["content"][0].pop("signature")
    assert len(signature) > 40
    strange = messages[3]["content"][1]["id"]
    assert messages == [
        {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm."},
                {"type": "text", "text": "Look."},
                {"type": "tool_use", "id": "toolu_1", "name": "lookup_order", "input": {"order_id": "A-1"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_1",
                    "content": [
                        {"type": "text", "text": "shipped"},
                        {
                            "type": "image",
                            "source": {"type": "base64", "media_type": "image/gif", "data": PIXEL},
                        },
                    ],
                },
                {"type": "text", "text": "See"},
                {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
                {
                    "type": "text",
                    "text": f"{NOTE_START}\nLate.\n{NOTE_END}",
                    "cache_control": CACHED,
                },
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Thanks. "},
                {
                    "type": "tool_use",
                    "id": strange,
                    "name": "no_such_6ca085ba",
                    "input": {"not_a_json_object": "[1]"},
                },
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": strange,
                    "content": [{"type": "text", "text": "[The call failed]\nNo."}],
                    "is_error": True,
                    "cache_control": CACHED,
                }
            ],
        },
    ]


async def test_a_history_that_begins_or_ends_with_the_assistant_is_framed_by_notes() -> None:
    body = await sent(ask(AssistantMessage("And so on."), user("Go on."), AssistantMessage("I will: ")))
    assert [message["role"] for message in body["messages"]] == [
        *("user", "assistant", "user", "assistant", "user"),
    ]
    for index in (0, -1):
        assert "did not write this" in body["messages"][index]["content"][0]["text"]


@pytest.mark.parametrize("blank", ["", " ", "\n\t\u2003"])
async def test_blank_texts_are_left_out(blank: str) -> None:
    call = FunctionCall("call_1", "f", "{}")
    body = await sent(
        ask(
            UserMessage((TextPart(blank), TextPart("Hi."))),
            AssistantMessage(blank),
            call,
            FunctionResult("call_1", (TextPart(blank),)),
            user(blank),
            instructions=blank,
        )
    )
    assert "system" not in body
    result = body["messages"][2]["content"][0]
    assert result["content"] == [{"type": "text", "text": "(no output)"}]
    assert len((await sent(ask(user(blank))))["messages"]) == 1


@pytest.mark.parametrize(
    "url",
    [
        "data:image/bmp;base64,AAAA",
        "data:image/svg+xml;base64,AAAA",
        "data:application/pdf;base64,AAAA",
        "http://example.com/a.png",
    ],
)
async def test_an_image_the_api_would_refuse_is_told_in_words(url: str) -> None:
    call = FunctionCall("call_1", "look", "{}")
    body = await sent(ask(UserMessage((ImagePart(url),)), call, FunctionResult("call_1", (ImagePart(url),))))
    assert str(body).count("[image not shown: ") == 2


@pytest.mark.parametrize("url", ["data:image/jpg;base64,AAAA", "DATA:image/PNG;name=a.png;base64,AAAA"])
async def test_images_in_odd_spellings(url: str) -> None:
    (block,) = (await sent(ask(UserMessage((ImagePart(url),)))))["messages"][0]["content"]
    assert block["source"]["media_type"] in ("image/jpeg", "image/png")
    assert block["source"]["data"] == "AAAA"


async def test_a_failed_result_with_an_image_is_no_error_of_the_api() -> None:
    picture = ImagePart(f"data:image/gif;base64,{PIXEL}")
    call = FunctionCall("call_1", "look", "{}")
    body = await sent(ask(user(), call, FunctionResult("call_1", (picture,), failed=True)))
    (result,) = body["messages"][2]["content"]
    assert "is_error" not in result
    assert result["content"][0]["text"] == "[The call failed]"


# ---- thinking of the past ----------------------------------------------------------------------


def random_step(choose: random.Random) -> list[Any]:
    outputs: list[Any] = []
    for number in range(choose.randint(1, 4)):
        if choose.random() < 0.6:
            outputs.append(Thought((f"Thought {choose.random()}.",) if choose.random() < 0.8 else ()))
        if choose.random() < 0.3:
            outputs.append(Text(""))
        outputs.append(choose.choice([Text(f"Said {number}."), Call("f", {"n": number})]))
    return outputs


@pytest.mark.parametrize("seed", range(6))
async def test_a_long_session_is_sent_back_exactly_as_it_was(seed: int) -> None:
    """A model that binds its thinking to what stood before it takes all of it back."""
    choose = random.Random(seed)
    async with AnthropicProvider(bound=True) as provider:
        model = AnthropicModel(provider.settings())
        history: list[Entry] = [user()]
        steps = [random_step(choose) for _ in range(25)]
        provider.queue(*(answer(*outputs) for outputs in steps))
        for _ in steps:
            step = entries_of(await collect(model, ask(*history, tools=(LOOKUP,))))
            owed = results(step)
            choose.shuffle(owed)
            history += [*step, *owed]
            if not owed or choose.random() < 0.2:
                history.append(user("Next."))
        await collect(model, ask(*history, tools=(LOOKUP,)))
        await model.close()
        assert provider.violations == []
        produced = sum(isinstance(output, Thought) for outputs in steps for output in outputs)
        assert len(thoughts_in(provider.requests[-1].body)) == produced


async def test_a_session_goes_on_when_its_thinking_is_no_longer_taken() -> None:
    async with AnthropicProvider(bound=True) as provider:
        model = AnthropicModel(provider.settings())
        provider.queue(*(answer(Thought((f"Thought {n}.",)), Call("f")) for n in range(4)))
        history: list[Entry] = [user()]
        for _ in range(2):
            step = entries_of(await collect(model, ask(*history, tools=(LOOKUP,))))
            history += [*step, *results(step)]
        changed: dict[str, Any] = {"instructions": "Be kind.", "tools": (LOOKUP,)}
        _, error = await fail(model, ask(*history, **changed))
        assert (error.code, error.retryable) == ("invalid_request", True)
        for expected in ([], ["Thought 2."]):
            step = entries_of(await collect(model, ask(*history, **changed)))
            history += [*step, *results(step)]
            assert thoughts_in(provider.requests[-1].body) == expected
        assert len(provider.violations) == 1
        await model.close()


async def test_a_refusal_without_thinking_of_the_past_is_final() -> None:
    words = "thinking: Invalid `signature` in `thinking` block"
    async with AnthropicProvider(Refusal(400, message=words)) as provider:
        model = AnthropicModel(provider.settings())
        _, error = await fail(model)
        assert not error.retryable
        await model.close()


@pytest.mark.parametrize(
    ("name", "effort", "kept"),
    [
        (OPUS, None, 1),
        (OPUS, "low", 1),
        ("my-own", "none", 0),
        (SONNET, "none", 1),
        ("claude-opus-4-8", None, 0),
    ],
)
async def test_thinking_goes_back_where_the_model_thinks(name: str, effort: Any, kept: int) -> None:
    async with AnthropicProvider(answer(Thought(("Hm.",)), Text("Hi."))) as provider:
        model = AnthropicModel(provider.settings())
        step = entries_of(await collect(model, ask(model=name, effort="high" if "4-8" in name else None)))
        await collect(model, ask(user(), *step, user(), model=name, effort=effort))
        assert len(thoughts_in(provider.requests[-1].body)) == kept
        assert provider.violations == []
        await model.close()


async def test_a_turn_that_began_without_thinking_goes_on_without_a_budget() -> None:
    async with AnthropicProvider(answer(Thought(("Hm.",)), Call("f")), answer(Call("f"))) as provider:
        model = AnthropicModel(provider.settings())
        thinking = {"model": OLD, "effort": "low"}
        step = entries_of(await collect(model, ask(**thinking)))
        history = [user(), *step, *results(step)]
        step = entries_of(await collect(model, ask(*history, **thinking)))
        history += [*step, *results(step)]
        await collect(model, ask(*history, **thinking))
        assert thoughts_in(provider.requests[-1].body) == ["Hm."]
        foreign = FunctionCall("call_1", "f", "{}")
        history += [AssistantMessage("Done."), user("Again."), foreign, FunctionResult("call_1", "shipped")]
        await collect(model, ask(*history, **thinking))
        assert "thinking" not in provider.requests[-1].body
        await collect(model, ask(*history, user("And now?"), AssistantMessage("Hm."), user("?"), **thinking))
        assert "thinking" in provider.requests[-1].body
        assert provider.violations == []
        await model.close()


# ---- output schemas ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "fits"),
    [
        (CLOSED, True),
        ({**CLOSED, "required": []}, True),
        ({**CLOSED, "additionalProperties": True}, False),
        ({"type": "object", "properties": {}}, False),
        ({"type": "array", "items": CLOSED}, False),
        ({**CLOSED, "properties": {"answer": {}}}, False),
        ({**CLOSED, "properties": {"answer": {"type": "integer", "minimum": 1}}}, False),
        ({**CLOSED, "properties": {"answer": {"type": "string", "format": "uri"}}}, True),
        ({**CLOSED, "properties": {"answer": {"type": "string", "format": "iban"}}}, False),
        ({**CLOSED, "properties": {"answer": {"type": "string", "default": "x"}}}, True),
        ({**CLOSED, "properties": {"answer": {"enum": ["a", 1, None]}}}, True),
        ({**CLOSED, "properties": {"answer": {"enum": [{"a": 1}]}}}, False),
        ({**CLOSED, "properties": {"answer": {"type": "array", "items": CLOSED, "minItems": 1}}}, True),
        ({**CLOSED, "properties": {"answer": {"type": "array", "items": CLOSED, "minItems": 2}}}, False),
        ({**CLOSED, "properties": {"answer": {"type": "array"}}}, False),
        ({**CLOSED, "properties": {"answer": {"anyOf": [CLOSED, {"type": "null"}]}}}, True),
        ({**CLOSED, "properties": {"answer": {"$ref": "#/$defs/x"}}, "$defs": {"x": CLOSED}}, True),
        ({**CLOSED, "properties": {"answer": {"$ref": "#/$defs/x"}}}, False),
        ({**CLOSED, "properties": {"answer": {"$ref": "#"}}}, False),
        (
            {
                **CLOSED,
                "properties": {"answer": {"$ref": "#/$defs/x"}},
                "$defs": {"x": {**CLOSED, "properties": {"answer": {"$ref": "#/$defs/x"}}}},
            },
            False,
        ),
        (
            {**CLOSED, "properties": {f"p{n}": {"type": "string"} for n in range(30)}, "required": []},
            False,
        ),
        ({**CLOSED, "properties": {f"p{n}": {"type": ["string", "null"]} for n in range(17)}}, False),
    ],
)
async def test_a_schema_is_enforced_where_the_api_takes_it(schema: dict[str, Any], fits: bool) -> None:
    assert fits_output_format(schema) is fits
    body = await sent(ask(model=OPUS, output_schema=schema))
    assert ("output_config" in body) is fits
    assert ("JSON Schema" in body["system"][0]["text"]) is not fits


async def test_the_configuration_decides_who_holds_the_model_to_a_schema() -> None:
    wanted = ask(output_schema=CLOSED)
    assert "output_config" not in await sent(wanted)
    assert "output_config" in await sent(wanted, model={"test-model": {"structured_output": True}})
    known = ask(model=OPUS, output_schema=CLOSED)
    assert "output_config" not in await sent(known, model={OPUS: {"structured_output": False}})
