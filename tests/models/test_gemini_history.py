"""What Gemini is shown of a conversation: strict turns, paired calls, signatures where they belong."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.models.wires import LOOKUP, ask, call_ids, collect, entries_of, fail, user
from tests.providers.answers import Call, Refusal, Text, Thought, answer
from tests.providers.gemini import GeminiProvider
from tests.providers.gemini_rules import FOREIGN_SIGNATURE, ModelRules

from perdure.models.gemini import GeminiModel
from perdure.models.messages import (
    AssistantMessage,
    Entry,
    FunctionCall,
    FunctionResult,
    FunctionSpec,
    ImagePart,
    Native,
    ServerNote,
    TextPart,
    UserMessage,
)

PNG = base64.b64encode(b"\x89PNG and so on").decode()
PICTURE = ImagePart(f"data:image/png;base64,{PNG}")
NOTE_START = "[Note from the server. The user did not write this.]"
NOTE_END = "[End of the note]"
EMPTY = {"type": "object", "properties": {}}


@pytest.fixture
async def provider() -> AsyncIterator[GeminiProvider]:
    async with GeminiProvider() as provider:
        yield provider
        assert provider.violations == []


@pytest.fixture
async def model(provider: GeminiProvider) -> AsyncIterator[GeminiModel]:
    model = GeminiModel(provider.settings())
    yield model
    await model.close()


def results(entries: list[Entry], content: Any = "shipped") -> list[Entry]:
    return [FunctionResult(call_id, content) for call_id in call_ids(entries)]


def contents(provider: GeminiProvider) -> list[dict[str, Any]]:
    return list(provider.requests[-1].body["contents"])


def signatures(provider: GeminiProvider) -> list[str]:
    parts = [part for content in contents(provider) for part in content["parts"]]
    return [part["thoughtSignature"] for part in parts if "thoughtSignature" in part]


async def test_the_contents_of_a_request(provider: GeminiProvider, model: GeminiModel) -> None:
    provider.queue(
        answer(
            Thought(("Hm.",)), Text("Look."), Call("lookup_order", {"order_id": "A-1"}, id="fc1"), Call("f")
        )
    )
    step = entries_of(await collect(model, ask(summary="auto")))
    first, second = call_ids(step)
    signed = provider.signed.calls["fc1"]
    native = step[-1].native  # type: ignore[union-attr]
    assert native is not None
    await collect(
        model,
        ask(
            AssistantMessage("Before."),
            UserMessage((TextPart("See"), PICTURE)),
            *step,
            FunctionResult(second, "no such order", failed=True),
            FunctionResult(first, (TextPart("shipped"), PICTURE)),
            user("And?"),
            ServerNote((TextPart("Late."),)),
        ),
    )
    image = {"inlineData": {"mimeType": "image/png", "data": PNG}}
    second_id = native.data["id"]
    assert contents(provider) == [
        {
            "role": "user",
            "parts": [{"text": f"{NOTE_START}\nWhat was said before is not shown.\n{NOTE_END}"}],
        },
        {"role": "model", "parts": [{"text": "Before."}]},
        {"role": "user", "parts": [{"text": "See"}, image]},
        {
            "role": "model",
            "parts": [
                {"text": "Look."},
                {
                    "functionCall": {"id": "fc1", "name": "lookup_order", "args": {"order_id": "A-1"}},
                    "thoughtSignature": signed,
                },
                {"functionCall": {"id": second_id, "name": "f", "args": {}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {
                    "functionResponse": {
                        "id": "fc1",
                        "name": "lookup_order",
                        "response": {"output": "shipped\n[image 1: shown after the results]"},
                    }
                },
                {
                    "functionResponse": {
                        "id": second_id,
                        "name": "f",
                        "response": {"error": "[The call failed]\nno such order"},
                    }
                },
                {"text": NOTE_START},
                {"text": "Image 1 of the results above:"},
                image,
                {"text": NOTE_END},
                {"text": "And?"},
                {"text": f"{NOTE_START}\nLate.\n{NOTE_END}"},
            ],
        },
    ]


async def test_a_result_of_json_keeps_every_digit(provider: GeminiProvider, model: GeminiModel) -> None:
    text = '{"amount": 129.90, "number": 123456789012345678901234567890}'
    await collect(model, ask(user(), FunctionCall("c", "f", text), FunctionResult("c", text)))
    call, result = (content["parts"][0] for content in contents(provider)[1:])
    assert result["functionResponse"]["response"] == {"output": text}
    assert call["functionCall"]["args"] == {
        "amount": 129.9,
        "number": 123456789012345678901234567890,
    }


@pytest.mark.parametrize("quirks", [(), ("signed_text",)])
async def test_signatures_come_back_on_the_parts_they_came_with(
    provider: GeminiProvider, model: GeminiModel, quirks: Any
) -> None:
    provider.queue(
        answer(Text("First."), quirks=quirks),
        answer(Text("I ask."), Call("f"), Call("g")),
        answer(Text("Second, in pieces.", chunks=3), quirks=quirks),
    )
    history: list[Entry] = []
    for _ in range(3):
        history.append(user())
        step = entries_of(await collect(model, ask(*history)))
        history += [*step, *results(step)]
        if call_ids(step):
            continue
    await collect(model, ask(*history, user("And?")))
    assert signatures(provider) == list(provider.signed.parts)[: len(signatures(provider))]
    assert len(signatures(provider)) == 3
    # What was said is said once, and empty parts carry signatures or nothing is there.
    assert "".join(_texts(provider)).count("Second, in pieces.") == 1


def _texts(provider: GeminiProvider) -> list[str]:
    return [part.get("text", "") for content in contents(provider) for part in content["parts"]]


async def test_a_text_that_was_changed_is_sent_without_its_signature(
    provider: GeminiProvider, model: GeminiModel
) -> None:
    provider.queue(answer(Text("A long answer.")))
    (said,) = entries_of(await collect(model))
    assert isinstance(said, AssistantMessage)
    await collect(model, ask(user(), AssistantMessage("A long", None, said.native), user()))
    assert signatures(provider) == []


async def test_calls_of_other_models_carry_the_documented_signature(
    provider: GeminiProvider, model: GeminiModel
) -> None:
    elsewhere = Native("elsewhere", "x", {"id": "toolu_1", "signature": "Zm9yZWlnbg=="})
    calls = [FunctionCall("a", "f", "{}", elsewhere), FunctionCall("b", "g", "{}")]
    await collect(
        model,
        ask(user(), AssistantMessage("I ask.", None, elsewhere), *calls, *results(list(calls)), user()),
    )
    assert signatures(provider) == [FOREIGN_SIGNATURE]
    first = contents(provider)[1]["parts"][1]
    assert first["functionCall"]["id"] == "a"
    assert first["thoughtSignature"] == FOREIGN_SIGNATURE


async def test_another_model_of_the_provider_gets_no_signature(
    provider: GeminiProvider, model: GeminiModel
) -> None:
    provider.queue(answer(Text("I ask."), Call("f")))
    step = entries_of(await collect(model))
    await collect(model, ask(user(), *step, *results(step), model="gemini-3-pro-preview"))
    assert signatures(provider) == [FOREIGN_SIGNATURE]


async def test_models_before_gemini_3_need_no_signature() -> None:
    async with GeminiProvider(rules=ModelRules(signed_calls=False, levels=False)) as provider:
        model = GeminiModel(provider.settings())
        call = FunctionCall("a", "f", "{}")
        await collect(model, ask(user(), call, *results([call]), model="gemini-2.5-flash"))
        assert signatures(provider) == []
        assert provider.violations == []
        await model.close()


async def test_signatures_that_are_no_longer_taken_are_given_up() -> None:
    async with GeminiProvider(answer(Text("I ask."), Call("f")), answer(Text("Done."))) as provider:
        model = GeminiModel(provider.settings())
        history: list[Entry] = [user()]
        for _ in range(2):
            step = entries_of(await collect(model, ask(*history)))
            history += [*step, *results(step)]
        history.append(user("And?"))
        provider.forget()
        _, error = await fail(model, ask(*history))
        assert (error.code, error.retryable) == ("invalid_request", True)
        await collect(model, ask(*history))
        assert signatures(provider) == [FOREIGN_SIGNATURE]
        assert len(provider.violations) == 1
        await model.close()


async def test_a_model_that_misses_a_signature_gets_one() -> None:
    async with GeminiProvider() as provider:
        model = GeminiModel(provider.settings())
        call = FunctionCall("a", "f", "{}")
        request = ask(user(), call, *results([call]), model="gemini-2.5-flash")
        _, error = await fail(model, request)
        assert error.retryable
        await collect(model, request)
        assert signatures(provider) == [FOREIGN_SIGNATURE]
        await model.close()


async def test_an_endpoint_without_ids_of_calls_is_sent_none() -> None:
    async with GeminiProvider(rules=ModelRules(call_ids=False)) as provider:
        model = GeminiModel(provider.settings())
        calls: list[Entry] = [FunctionCall("a", "f", "{}"), FunctionCall("b", "f", "{}")]
        _, error = await fail(model, ask(user(), *calls, *results(calls)))
        assert error.retryable
        await collect(model, ask(user(), *calls, *results(calls)))
        await model.close()


async def test_the_same_id_twice_in_a_step_is_replaced_by_ours(
    provider: GeminiProvider, model: GeminiModel
) -> None:
    provider.queue(answer(Call("f", {"n": 1}, id="call_0"), Call("f", {"n": 2}, id="call_0")))
    step = entries_of(await collect(model))
    provider.signed.calls.clear()  # its id does not come back, so neither does the way to tell
    await collect(model, ask(user(), *step, *results(step)))
    ids = [part["functionCall"]["id"] for part in contents(provider)[1]["parts"]]
    assert ids == call_ids(step)


# ---- images ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("https://example.com/a/picture.PNG?size=2", "image/png"),
        ("https://example.com/photo.jpg#x", "image/jpeg"),
        ("http://example.com/view", None),
    ],
)
async def test_an_image_of_the_web_is_fetched_by_google(
    provider: GeminiProvider, model: GeminiModel, url: str, kind: str | None
) -> None:
    await collect(model, ask(UserMessage((ImagePart(url),))))
    wanted = {"fileUri": url} | ({"mimeType": kind} if kind else {})
    assert contents(provider)[0]["parts"] == [{"fileData": wanted}]


@pytest.mark.parametrize(
    "url", ["data:image/gif;base64,R0lGODlhAQABAAAAACw=", "data:image/svg+xml,%3Csvg/%3E", "data:,x"]
)
async def test_an_image_no_model_reads_is_told_in_words(
    provider: GeminiProvider, model: GeminiModel, url: str
) -> None:
    await collect(model, ask(UserMessage((TextPart("See"), ImagePart(url)))))
    said = contents(provider)[0]["parts"][1]["text"]
    assert said.startswith("[image not shown: ")


async def test_images_of_the_web_are_not_for_old_models() -> None:
    async with GeminiProvider(rules=ModelRules(signed_calls=False, fetches_images=False)) as provider:
        model = GeminiModel(provider.settings())
        url = "https://example.com/picture.png"
        await collect(model, ask(UserMessage((ImagePart(url),)), model="gemini-2.0-flash"))
        assert contents(provider)[0]["parts"] == [{"text": f"[An image that could not be shown: {url}]"}]
        await model.close()


async def test_an_image_that_is_not_fetched_twice_is_not_sent_again(
    provider: GeminiProvider, model: GeminiModel
) -> None:
    request = ask(UserMessage((TextPart("See"), ImagePart("https://example.com/gone.png"))))
    for _ in range(2):
        provider.queue(Refusal(400, None, "Cannot fetch content from the provided URL."))
        _, error = await fail(model, request)
        assert error.retryable
        assert "fileData" in str(contents(provider))
    await collect(model, request)
    assert "fileData" not in str(contents(provider))


# ---- names -------------------------------------------------------------------------------------


async def test_names_google_does_not_take_are_mapped_there_and_back(
    provider: GeminiProvider, model: GeminiModel
) -> None:
    names = ["1st", "_1st", "-x", "ok", "9" * 64]
    tools = tuple(FunctionSpec(name, "", EMPTY) for name in names)
    await collect(model, ask(tools=tools))
    (offered,) = provider.requests[0].body["tools"]
    sent = [function["name"] for function in offered["functionDeclarations"]]
    assert len(set(sent)) == len(names)
    assert sent[3] == "ok"
    provider.queue(answer(*(Call(name) for name in sent)))
    step = entries_of(await collect(model, ask(tools=tools)))
    assert [entry.name for entry in step if isinstance(entry, FunctionCall)] == names
    await collect(model, ask(user(), *step, *results(step), tools=tools))
    parts = contents(provider)[1]["parts"]
    assert [part["functionCall"]["name"] for part in parts] == sent


# ---- the settled part --------------------------------------------------------------------------


@pytest.mark.parametrize("settled", range(9))
async def test_a_history_is_the_same_whatever_of_it_is_written_once(
    provider: GeminiProvider, model: GeminiModel, settled: int
) -> None:
    call = FunctionCall("c", "lookup_order", '{"order_id": "A-1"}')
    entries: list[Entry] = [
        user("One."),
        user("Still one."),
        AssistantMessage("Said."),
        user("Two."),
        call,
        FunctionResult("c", "shipped"),
        AssistantMessage("Shipped."),
        ServerNote((TextPart("Late."),)),
        user("Three."),
    ]
    await collect(model, ask(*entries, tools=(LOOKUP,)))
    whole = contents(provider)
    request = ask(*entries, tools=(LOOKUP,), settled=settled, cache_key="sess_1")
    for _ in range(2):
        await collect(model, request)
        assert contents(provider) == whole
    await collect(model, ask(*entries, AssistantMessage("Good."), user("Four."), cache_key="sess_1"))
    assert contents(provider)[: len(whole)] == whole


async def test_a_history_that_ends_with_the_model_is_gone_on_with(
    provider: GeminiProvider, model: GeminiModel
) -> None:
    await collect(model, ask(user(), AssistantMessage("Half an ans")))
    assert contents(provider)[-1] == {
        "role": "user",
        "parts": [{"text": f"{NOTE_START}\nGo on.\n{NOTE_END}"}],
    }
