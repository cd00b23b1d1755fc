"""Every history that a session can reach is one the provider accepts."""

from __future__ import annotations

import base64
import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.models.wires import LOOKUP, WIRES, Wire, ask, call_ids, collect, entries_of, fail, user
from tests.providers.answers import Call, Text, Thought, answer
from tests.providers.chat import ChatProvider
from tests.providers.responses import ResponsesProvider
from tests.providers.server import FakeProvider

from perdure.models.chat import ChatModel
from perdure.models.messages import (
    AssistantMessage,
    Entry,
    FunctionCall,
    FunctionResult,
    ImagePart,
    Model,
    ModelRequest,
    Native,
    Reasoning,
    ServerNote,
    TextPart,
    UserMessage,
)
from perdure.models.responses import ResponsesModel

IMAGE = "data:image/png;base64," + base64.b64encode(b"\x89PNG and so on").decode()
PICTURE = ImagePart(IMAGE)
NOTE_START = "[Note from the server. The user did not write this.]"
NOTE_END = "[End of the note]"


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> Wire:
    return WIRES[request.param]


@pytest.fixture
async def provider(wire: Wire) -> AsyncIterator[FakeProvider]:
    async with wire.provider() as provider:
        yield provider
        assert provider.violations == []


@pytest.fixture
async def model(wire: Wire, provider: FakeProvider) -> AsyncIterator[Model]:
    model = wire.model(provider.settings())
    yield model
    await model.close()


def results(entries: list[Entry], content: Any = "shipped") -> list[Entry]:
    return [FunctionResult(call_id, content) for call_id in call_ids(entries)]


def sent(provider: FakeProvider) -> list[dict[str, Any]]:
    """The input of the last request."""
    body = provider.requests[-1].body
    return list(body.get("input") or body.get("messages") or body["contents"])


async def test_steps_with_reasoning_texts_and_parallel_calls(provider: FakeProvider, model: Model) -> None:
    provider.queue(
        answer(
            Thought(("Look both up.",)),
            Text("I look both up.", phase="commentary"),
            Call("lookup_order", {"order_id": "A-1042"}, id=""),
            Call("lookup_order", {"order_id": "A-1043"}, id=""),
        ),
        answer(Thought(("One more.",)), Call("lookup_order", {"order_id": "A-1044"}, id="call_0")),
        answer(Thought(("That is all.",)), Text("All shipped.", phase="final_answer")),
    )
    history: list[Entry] = [user("Where are my orders?")]
    for _ in range(3):
        step = entries_of(await collect(model, ask(*history, tools=(LOOKUP,))))
        history += [*step, *results(step)]
    history.append(user("Thanks."))
    await collect(model, ask(*history, tools=(LOOKUP,)))
    assert len(provider.requests) == 4
    # Gemini's thoughts come back as signatures.
    assert ("Look both up." in str(sent(provider))) == (provider.PROTOCOL != "gemini")


async def test_all_reasoning_goes_back_to_its_producer(provider: FakeProvider, model: Model) -> None:
    provider.queue(
        answer(Thought(("Thought one.",)), Call("f", id="a"), Call("g", id="a")),
        answer(Thought(("Thought two.",)), Text("Done.")),
    )
    history: list[Entry] = [user()]
    for _ in range(2):
        step = entries_of(await collect(model, ask(*history)))
        history += [*step, *results(step)]
    await collect(model, ask(*history, user("And?")))
    sign = "thoughtSignature" if provider.PROTOCOL == "gemini" else "Thought"
    assert str(sent(provider)).count(sign) == 2


async def test_another_model_gets_no_reasoning_and_no_ids(provider: FakeProvider, model: Model) -> None:
    provider.queue(answer(Thought(("Secret thought.",)), Text("Hm."), Call("f")))
    step = entries_of(await collect(model))
    history = [user(), *step, *results(step), user("Go on.")]
    await collect(model, ask(*history, model="another-model"))
    assert "Secret thought." not in str(sent(provider))
    assert not any("id" in item for item in sent(provider))


@pytest.mark.parametrize("names", list(itertools.permutations(WIRES, 2)), ids="-".join)
async def test_another_provider_accepts_the_whole_history(names: tuple[str, str]) -> None:
    wire, other = (WIRES[name] for name in names)
    async with wire.provider() as here, other.provider() as there:
        first, second = wire.model(here.settings("here")), other.model(there.settings("there"))
        here.queue(answer(Thought(("Mine.",)), Text("Wait."), Call("f", id="functions.f:0"), Call("f")))
        step = entries_of(await collect(first))
        history = [user(), *step, *results(step)]
        there.queue(answer(Thought(("Theirs.",)), Call("g", id="call_0")))
        step = entries_of(await collect(second, ask(*history)))
        history += [*step, *results(step)]
        await collect(first, ask(*history))
        assert "Theirs." not in str(sent(here))
        assert here.violations == there.violations == []
        await first.close()
        await second.close()


@pytest.mark.parametrize("dropped", [1, 2])
async def test_reasoning_goes_only_with_what_followed_it(
    provider: FakeProvider, model: Model, dropped: int
) -> None:
    provider.queue(answer(Thought(("Hm.",)), Text("Hello."), Call("f")))
    step = entries_of(await collect(model))
    kept = [entry for index, entry in enumerate(step) if index != dropped]
    await collect(model, ask(user(), *kept, *results(kept), user("Again.")))


async def test_an_output_goes_without_its_id_when_its_reasoning_is_gone(
    provider: FakeProvider, model: Model
) -> None:
    provider.queue(answer(Thought(("Hm.",)), Text("Hello."), Call("f")))
    step = entries_of(await collect(model))[1:]
    await collect(model, ask(user(), *step, *results(step)))


async def test_orphaned_reasoning_is_left_out(provider: FakeProvider, model: Model) -> None:
    provider.queue(answer(Thought(("Hm.",)), Text("Hello.")))
    thought = entries_of(await collect(model))[0]
    await collect(model, ask(user(), thought, user("Never mind."), thought))


async def test_the_same_output_twice_is_sent_once_by_id(provider: FakeProvider, model: Model) -> None:
    provider.queue(answer(Text("Hello.")))
    (said,) = entries_of(await collect(model))
    await collect(model, ask(user(), said, user(), said, user()))


async def test_a_failed_result_is_marked(provider: FakeProvider, model: Model) -> None:
    calls = [FunctionCall("call_1", "f", "{}"), FunctionCall("call_2", "f", "{}")]
    outcomes = [
        FunctionResult("call_1", "no such order", failed=True),
        FunctionResult("call_2", (PICTURE,), failed=True),
    ]
    await collect(model, ask(user(), *calls, *outcomes))
    assert "[The call failed]\\nno such order" in str(sent(provider))
    assert str(sent(provider)).count("[The call failed]") == 2


@pytest.mark.parametrize("content", ["", (), (TextPart(""),)])
async def test_an_empty_result_is_said(provider: FakeProvider, model: Model, content: Any) -> None:
    await collect(model, ask(user(), FunctionCall("call_1", "f", "{}"), FunctionResult("call_1", content)))
    assert "(no output)" in str(sent(provider))


@pytest.mark.parametrize("url", [IMAGE, "https://example.com/picture.png"])
async def test_images_of_users_and_results(provider: FakeProvider, model: Model, url: str) -> None:
    calls = [FunctionCall("call_1", "look", "{}"), FunctionCall("call_2", "look", "{}")]
    content = (TextPart("Before"), ImagePart(url), TextPart("After"), ImagePart(url))
    await collect(
        model,
        ask(
            UserMessage((TextPart("See:"), ImagePart(url))),
            *calls,
            FunctionResult("call_1", content),
            FunctionResult("call_2", (ImagePart(url),)),
            AssistantMessage("I see."),
            user("Good."),
        ),
    )
    assert str(sent(provider)).count(url.rpartition(",")[2]) == 4


async def test_a_note_says_that_it_is_not_the_users(provider: FakeProvider, model: Model) -> None:
    await collect(model, ask(user(), ServerNote((TextPart("The result came late."), PICTURE))))
    last = sent(provider)[-1]
    assert last["role"] == "user"
    assert "not write this" in str(last)
    assert "The result came late." in str(last)


async def test_what_stands_between_calls_and_results_still_pairs(
    provider: FakeProvider, model: Model
) -> None:
    await collect(
        model,
        ask(
            user(),
            FunctionCall("call_1", "f", "{}"),
            AssistantMessage("Both at once."),
            FunctionCall("call_2", "f", "{}"),
            user("Hurry!"),
            FunctionResult("call_2", "two"),
            ServerNote((TextPart("Note."),)),
            FunctionResult("call_1", "one"),
            user("Well?"),
        ),
    )


@pytest.mark.parametrize("call_id", ["functions.lookup:0", "x" * 200, "call_é", "a b", "", "call_1|fc_2"])
async def test_ids_no_provider_takes_are_mapped_alike(
    provider: FakeProvider, model: Model, call_id: str
) -> None:
    history = ask(
        user(),
        FunctionCall(call_id, "f", "{}"),
        FunctionCall("call_other", "f", "{}"),
        FunctionResult("call_other", "other"),
        FunctionResult(call_id, "mine"),
    )
    await collect(model, history)
    first = sent(provider)
    await collect(model, history)
    assert sent(provider) == first


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("functions.lookup", "{}"),
        ("", ""),
        ("look up", "null"),
        ("x" * 100, "[1]"),
        ("日本", '{"order_id": "A-10'),
        ("f", '"text"'),
        ("f", "{" * 100_000),
    ],
)
async def test_what_a_model_made_up_is_sent_in_an_acceptable_form(
    provider: FakeProvider, model: Model, name: str, arguments: str
) -> None:
    call, result = FunctionCall("call_1", name, arguments), FunctionResult("call_1", "No.", failed=True)
    await collect(model, ask(user(), call, result))


async def test_empty_messages_are_left_out(provider: FakeProvider, model: Model) -> None:
    await collect(
        model, ask(user("Hi."), AssistantMessage(""), UserMessage((TextPart(""),)), ServerNote(()), user(""))
    )
    assert len([item for item in sent(provider) if item["role"] != "system"]) == 1


async def test_an_empty_message_takes_its_reasoning_with_it(provider: FakeProvider, model: Model) -> None:
    provider.queue(answer(Thought(("Hm.",)), Text(""), Call("f")))
    step = entries_of(await collect(model))
    await collect(model, ask(user(), *step, *results(step)))


async def test_no_instructions_and_a_history_of_one(provider: FakeProvider, model: Model) -> None:
    await collect(model, ask(instructions=""))
    assert len(sent(provider)) == 1


# ---- reasoning rules of chat servers -----------------------------------------------------------


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
@pytest.mark.parametrize("details", [False, True])
async def test_a_server_that_wants_reasoning_back_gets_it_everywhere(field: str, details: bool) -> None:
    async with ChatProvider(
        reasoning_rule="required", reasoning_field=field, reasoning_details=details
    ) as provider:
        model = ChatModel(provider.settings())
        provider.queue(
            answer(Text("Without a thought.")),
            answer(Thought(raw="Hm."), Text("Let me see."), Call("f")),
            answer(Call("g")),
            answer(Thought(raw="Well."), Text("Done.")),
        )
        history: list[Entry] = []
        for _ in range(4):
            history.append(user())
            step = entries_of(await collect(model, ask(*history)))
            history += [*step, *results(step)]
        await collect(model, ask(*history, user()))
        assert provider.violations == []
        assert [message.get(field) for message in sent(provider) if message["role"] == "assistant"] == [
            "",
            "Hm.",
            "",
            "Well.",
        ]
        await model.close()


async def test_a_server_that_forbids_reasoning_gets_none() -> None:
    async with ChatProvider(reasoning_rule="forbidden") as provider:
        model = ChatModel(provider.settings())
        provider.queue(answer(Thought(raw="Hm."), Text("Done.")))
        step = entries_of(await collect(model, ask(model="deepseek-r1")))
        await collect(model, ask(user(), *step, user(), model="deepseek-r1"))
        assert provider.violations == []
        await model.close()


@pytest.mark.parametrize("rule", ["required", "forbidden"])
async def test_what_a_server_wants_of_reasoning_is_learnt_from_one_refusal(rule: Any) -> None:
    async with ChatProvider(reasoning_rule=rule) as provider:
        model = ChatModel(provider.settings())
        provider.queue(answer(Thought(raw="Hm."), Text("One.")))
        step = entries_of(await collect(model))
        if rule == "required":
            step = [entry for entry in step if not isinstance(entry, Reasoning)]
        _, error = await fail(model, ask(user(), *step, user()))
        assert (error.code, error.retryable) == ("invalid_request", True)
        await collect(model, ask(user(), *step, user()))
        assert len(provider.violations) == 1
        await model.close()


async def test_a_provider_that_forgot_its_own_items_still_goes_on() -> None:
    planned = answer(Thought(("Hm.",)), Text("One."), Call("f"))
    async with ResponsesProvider(planned, planned) as provider:
        model = ResponsesModel(provider.settings())
        step = entries_of(await collect(model))
        history = [user(), *step, *results(step)]
        provider.forget()
        _, error = await fail(model, ask(*history))
        assert (error.code, error.retryable) == ("invalid_request", True)
        step = entries_of(await collect(model, ask(*history)))
        await collect(model, ask(*history, *step, *results(step)))
        assert len(provider.violations) == 1
        assert [item["type"] for item in sent(provider) if "id" in item] == [
            "reasoning",
            "message",
            "function_call",
        ]
        await model.close()


# ---- every order of entries --------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.booleans(), st.integers(0, 3), st.permutations(range(3))), max_size=6
)


@settings(max_examples=40, deadline=None)
@given(STEPS, st.randoms(use_true_random=False))
@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
async def test_any_history_of_whole_steps_is_accepted(wire: Wire, steps: Any, random: Any) -> None:
    async with wire.provider() as provider:
        model = wire.model(provider.settings())
        history: list[Entry] = [user()]
        for thoughts, text, calls, order in steps:
            if wire.provider.PROTOCOL == "gemini" and not text and not calls:
                continue  # an answer of nothing is a fault there
            provider.queue(
                answer(
                    *(Thought((f"thought {number}",)) for number in range(thoughts)),
                    *([Text("said")] if text else []),
                    *(Call("f", {"n": number}, id="") for number in range(calls)),
                )
            )
            step = entries_of(await collect(model, ask(*history)))
            owed = results(step)
            history += [*step, *(owed[index] for index in order if index < len(owed))]
            # Trimming, another agent or a crash may take any whole step's reasoning or ids away.
            if random.random() < 0.3:
                history = [
                    entry for entry in history if not isinstance(entry, Reasoning) or random.random() < 0.5
                ]
            history.append(user("Next."))
        await collect(model, ask(*history))
        await model.close()
        assert provider.violations == []


# ---- golden requests ---------------------------------------------------------------------------


async def _body(provider: FakeProvider, model: Model, request: ModelRequest) -> dict[str, Any]:
    await collect(model, request)
    await model.close()
    assert provider.violations == []
    return provider.requests[-1].body


async def test_the_input_of_a_responses_request() -> None:
    async with ResponsesProvider(
        answer(
            Thought(("Hm.",)), Text("Look.", phase="commentary"), Call("lookup_order", {"order_id": "A-1"})
        )
    ) as provider:
        model = ResponsesModel(provider.settings())
        thought, said, called = entries_of(await collect(model))
        assert isinstance(thought, Reasoning)
        assert isinstance(said, AssistantMessage)
        assert isinstance(called, FunctionCall)
        assert said.native is not None
        assert called.native is not None
        elsewhere = Native("elsewhere", "x", {"id": "msg_x", "reasoning": [], "phase": "commentary"})
        body = await _body(
            provider,
            model,
            ask(
                AssistantMessage("Before.", "final_answer", elsewhere),
                UserMessage((TextPart("See"), PICTURE)),
                thought,
                said,
                called,
                FunctionResult(called.call_id, (TextPart("shipped"), PICTURE)),
                ServerNote((TextPart("Late."),)),
            ),
        )
        assert body["input"] == [
            {"type": "message", "role": "assistant", "content": "Before."},
            {
                "type": "message",
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "See"},
                    {"type": "input_image", "image_url": IMAGE, "detail": "auto"},
                ],
            },
            {
                "type": "reasoning",
                "id": thought.native.data["id"],
                "encrypted_content": thought.native.data["encrypted_content"],
                "summary": [{"type": "summary_text", "text": "Hm."}],
            },
            {
                "type": "message",
                "role": "assistant",
                "id": said.native.data["id"],
                "status": "completed",
                "content": [{"type": "output_text", "text": "Look.", "annotations": []}],
                "phase": "commentary",
            },
            {
                "type": "function_call",
                "id": called.native.data["id"],
                "call_id": called.call_id,
                "name": "lookup_order",
                "arguments": '{"order_id": "A-1"}',
            },
            {
                "type": "function_call_output",
                "call_id": called.call_id,
                "output": [
                    {"type": "input_text", "text": "shipped"},
                    {"type": "input_image", "image_url": IMAGE, "detail": "auto"},
                ],
            },
            {
                "type": "message",
                "role": "user",
                "content": [
                    {
                        "type": "input_text",
                        "text": f"{NOTE_START}\nLate.\n{NOTE_END}",
                    }
                ],
            },
        ]


async def test_the_messages_of_a_chat_request() -> None:
    async with ChatProvider(
        answer(Thought(raw="Hm."), Text("Look."), Call("lookup_order", {"order_id": "A-1"}))
    ) as provider:
        model = ChatModel(provider.settings())
        step = entries_of(await collect(model))
        (call_id,) = call_ids(step)
        body = await _body(
            provider,
            model,
            ask(
                UserMessage((TextPart("See"), PICTURE)),
                *step,
                FunctionResult(call_id, (TextPart("shipped"), PICTURE)),
                user("And?"),
            ),
        )
        image = {"type": "image_url", "image_url": {"url": IMAGE}}
        assert body["messages"] == [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "See"}, image]},
            {
                "role": "assistant",
                "content": "Look.",
                "tool_calls": [
                    {
                        "id": call_id,
                        "type": "function",
                        "function": {"name": "lookup_order", "arguments": '{"order_id": "A-1"}'},
                    }
                ],
                "reasoning_content": "Hm.",
            },
            {
                "role": "tool",
                "tool_call_id": call_id,
                "content": "shipped\n[image 1: shown after the results]",
            },
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": NOTE_START},
                    {"type": "text", "text": "Image 1 of the results above:"},
                    image,
                    {"type": "text", "text": NOTE_END},
                ],
            },
            {"role": "user", "content": "And?"},
        ]
