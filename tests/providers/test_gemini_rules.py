"""The fake Gemini provider refuses what the real one refuses."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest
from tests.providers.answers import Call, Text, answer
from tests.providers.gemini import GeminiProvider
from tests.providers.gemini_rules import FOREIGN_SIGNATURE, ModelRules
from tests.providers.server import KEY

Body = dict[str, Any]
Change = Callable[[Body], object]

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
GOOD: Body = {
    "systemInstruction": {"parts": [{"text": "Be brief."}]},
    "contents": [
        {"role": "user", "parts": [{"text": "Hi"}]},
        {
            "role": "model",
            "parts": [
                {
                    "functionCall": {"id": "1", "name": "f", "args": {}},
                    "thoughtSignature": FOREIGN_SIGNATURE,
                },
                {"functionCall": {"id": "2", "name": "g", "args": {}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"id": "1", "name": "f", "response": {"output": "one"}}},
                {"functionResponse": {"id": "2", "name": "g", "response": {"output": "two"}}},
            ],
        },
    ],
    "tools": [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": SCHEMA}, {"name": "g"}]}],
    "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
}
GOOD["tools"][0]["functionDeclarations"][1]["parametersJsonSchema"] = SCHEMA


async def post(provider: GeminiProvider, body: Body, model: str = "m") -> tuple[int, Any]:
    url = f"{provider.base_url}/models/{model}:streamGenerateContent?alt=sse"
    headers = {"x-goog-api-key": KEY}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(url, json=body) as response,
    ):
        if response.status == 200:
            return 200, await response.text()
        return response.status, await response.json()


def parts(content: int) -> Callable[[Body], list[Any]]:
    return lambda body: body["contents"][content]["parts"]


def call(**fields: Any) -> Change:
    return lambda body: body["contents"][1]["parts"][0]["functionCall"].update(fields)


def response(**fields: Any) -> Change:
    return lambda body: body["contents"][2]["parts"][0]["functionResponse"].update(fields)


def function(**fields: Any) -> Change:
    return lambda body: body["tools"][0]["functionDeclarations"][0].update(fields)


def config(**fields: Any) -> Change:
    return lambda body: body.update(generationConfig=fields)


def add(content: int, **part: Any) -> Change:
    return lambda body: body["contents"][content]["parts"].append(part)


CASES: dict[str, Change] = {
    "unknown field": lambda body: body.update(store_it=True),
    "no contents": lambda body: body["contents"].clear(),
    "model first": lambda body: body["contents"].pop(0),
    "model last": lambda body: body["contents"].append({"role": "model", "parts": [{"text": "x"}]}),
    "other role": lambda body: body["contents"][0].update(role="assistant"),
    "two turns of the user": lambda body: body["contents"].insert(0, body["contents"][0]),
    "no parts": lambda body: parts(0)(body).clear(),
    "empty text": add(0, text=""),
    "no data": add(0),
    "two kinds of data": add(0, text="x", fileData={"fileUri": "https://a.b/c"}),
    "call of the user": add(0, functionCall={"name": "f", "args": {}}),
    "result of the model": add(1, functionResponse={"name": "f", "response": {"output": "x"}}),
    "missing result": lambda body: parts(2)(body).pop(),
    "result too many": lambda body: parts(2)(body).append(parts(2)(body)[0]),
    "results in another order": lambda body: parts(2)(body).reverse(),
    "text before the results": lambda body: parts(2)(body).insert(0, {"text": "x"}),
    "call without arguments": call(args=None),
    "arguments as text": call(args="{}"),
    "bad name of a call": call(name="1f"),
    "another id": response(id="3"),
    "same id twice": lambda body: (call(id="2")(body), response(id="2")(body)),
    "result as text": response(response="one"),
    "unsigned call": lambda body: parts(1)(body)[0].pop("thoughtSignature"),
    "unknown signature": lambda body: parts(1)(body)[0].update(thoughtSignature="c2ln"),
    "signature of the user": add(0, text="x", thoughtSignature="c2ln"),
    "bad image": add(0, inlineData={"mimeType": "image/png", "data": "%%"}),
    "image of a bad type": add(0, inlineData={"mimeType": "image/gif", "data": "AA=="}),
    "file that is none": add(0, fileData={"fileUri": "file:///etc/passwd"}),
    "bad function name": function(name="a b"),
    "same function twice": function(name="g"),
    "no schema": function(parametersJsonSchema={"type": "string"}),
    "schema in the other form": function(parameters={"type": "OBJECT"}),
    "no functions": lambda body: body["tools"][0]["functionDeclarations"].clear(),
    "mode without functions": lambda body: body.pop("tools"),
    "bad mode": lambda body: body["toolConfig"]["functionCallingConfig"].update(mode="SOME"),
    "both kinds of thinking": config(thinkingConfig={"thinkingLevel": "LOW", "thinkingBudget": 1}),
    "bad level": config(thinkingConfig={"thinkingLevel": "EXTREME"}),
    "unknown setting": config(verbosity="low"),
    "schema without its type": config(responseJsonSchema=SCHEMA),
    "type without a schema": config(responseMimeType="application/json"),
    "both schemas": config(
        responseMimeType="application/json", responseJsonSchema=SCHEMA, responseSchema={"type": "OBJECT"}
    ),
    "bad tier": lambda body: body.update(serviceTier="fast"),
    "empty instructions": lambda body: body["systemInstruction"]["parts"][0].update(text=""),
}


async def test_a_good_request_is_answered() -> None:
    async with GeminiProvider() as provider:
        assert (await post(provider, GOOD))[0] == 200
        assert provider.violations == []


@pytest.mark.parametrize("change", CASES.values(), ids=[name.replace(" ", "_") for name in CASES])
async def test_a_bad_request_is_refused_and_told(change: Change) -> None:
    bad = copy.deepcopy(GOOD)
    change(bad)
    assert bad != GOOD
    async with GeminiProvider(answer(Text("never said"))) as provider:
        status, told = await post(provider, bad)
        assert status == 400
        assert told["error"]["status"] == "INVALID_ARGUMENT"
        assert len(provider.violations) == 1
        assert provider.unplayed == 1


async def test_a_signature_comes_back_only_as_it_was_and_where_it_was() -> None:
    async with GeminiProvider(answer(Text("Hm."), Call("f", {"n": 1}, id="9"))) as provider:
        await post(provider, {"contents": GOOD["contents"][:1]})
        (signature,) = provider.signed.parts

        async def accepts(part: Body, model: str = "m") -> bool:
            result = {"functionResponse": {"id": "9", "name": "f", "response": {"output": "x"}}}
            contents = [
                *GOOD["contents"][:1],
                {"role": "model", "parts": [part]},
                {"role": "user", "parts": [result]},
            ]
            status, _ = await post(provider, {"contents": contents}, model)
            return status == 200

        made = {"id": "9", "name": "f", "args": {"n": 1}}
        assert await accepts({"functionCall": made, "thoughtSignature": signature})
        assert not await accepts({"functionCall": made, "thoughtSignature": signature}, "another")
        assert not await accepts({"functionCall": made, "thoughtSignature": FOREIGN_SIGNATURE})
        assert not await accepts({"functionCall": {**made, "args": {}}, "thoughtSignature": signature})
        assert await accepts({"functionCall": made, "thoughtSignature": FOREIGN_SIGNATURE}, "another")


async def test_errors_have_the_shape_of_google() -> None:
    async with GeminiProvider(max_body=50, rules=ModelRules()) as provider:
        status, told = await post(provider, GOOD)
        assert (status, told["error"]["status"]) == (400, "INVALID_ARGUMENT")
        assert told["error"]["message"].startswith("Request payload size exceeds the limit")
