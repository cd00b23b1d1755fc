"""A history that is written bit by bit is the one that would be written at once."""

from __future__ import annotations

import json
import operator
import random
from typing import Any

import pytest

from perdure.models.anthropic_body import OFFERS, History
from perdure.models.anthropic_messages import MessageWriter as AnthropicWriter
from perdure.models.anthropic_messages import settled_messages, thought_id
from perdure.models.chat_body import REASONING_FIELD, MessageWriter
from perdure.models.chat_dialect import ReasoningRule, dialect_of
from perdure.models.jsontext import Encoded, encode
from perdure.models.messages import (
    AssistantMessage,
    Entry,
    FunctionCall,
    FunctionResult,
    ModelRequest,
    Native,
    Reasoning,
    ServerNote,
    TextPart,
    UserMessage,
)
from perdure.models.offered import Offered
from perdure.models.responses_body import InputWriter
from perdure.models.settled import SettledHistories

RULES: list[ReasoningRule] = ["as_received", "required", "forbidden"]


def turn(choice: random.Random, number: int) -> list[Entry]:
    """One turn: a message, steps with calls, reasoning of this provider or none, an answer."""
    entries: list[Entry] = [UserMessage((TextPart(f"question {number} é\u0000"),))]
    for step in range(choice.randrange(3)):
        name = f"{number}_{step}"
        reasoned = choice.random() < 0.4
        native = Native("p", "m", {"id": f"fc_{name}", "first": True, "reasoning": [f"rs_{name}"] * reasoned})
        if reasoned:
            data = {
                "id": f"rs_{name}",
                "encrypted_content": "x",
                "field": "reasoning",
                "text": f"because {name}",
            }
            entries.append(Reasoning(("because",), Native("p", "m", data)))
        entries.append(FunctionCall(f"call_{name}", "look", json.dumps({"n": 2**70}), native))
        entries.append(FunctionResult(f"call_{name}", f"result {name}", failed=choice.random() < 0.2))
        if choice.random() < 0.3:
            entries.append(ServerNote((TextPart("a late result"),)))
    entries.append(AssistantMessage(f"answer {number}", "final_answer"))
    return entries


def requests(seed: int) -> list[ModelRequest]:
    """The requests of a conversation that grows, now and then begins anew, and is asked twice a turn."""
    choice = random.Random(seed)
    made: list[ModelRequest] = []
    settled: list[Entry] = []
    for number in range(12):
        if choice.random() < 0.1:
            settled = []
        running = turn(choice, number)
        for end in sorted({1, len(running)}):
            entries = (*settled, *running[:end])
            made.append(ModelRequest("m", "", entries, cache_key="s", settled=len(settled)))
        settled += running
    return made


@pytest.mark.parametrize("seed", range(20))
def test_input_items_are_the_same(seed: int) -> None:
    histories: SettledHistories[frozenset[str]] = SettledHistories()

    def write(entries: Any, sent: frozenset[str]) -> tuple[list[dict[str, Any]], frozenset[str]]:
        writer = InputWriter("p", "m", sent=sent)
        return writer.write(entries), frozenset(writer.sent)

    for request in requests(seed):
        whole = InputWriter("p", "m").write(request.entries)
        assert histories.write("s", request, frozenset(), write).json == encode(whole)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", range(20))
def test_messages_are_the_same(seed: int, rule: ReasoningRule) -> None:
    """A field that the assistant's messages get late is in the early ones too."""
    histories: SettledHistories[str | None] = SettledHistories(operator.eq)
    dialect = dialect_of("https://provider.test/v1")

    def write(entries: Any, spelling: str | None) -> tuple[list[dict[str, Any]], str | None]:
        writer = MessageWriter("p", "m", dialect, rule, spelling)
        return writer.write(entries), writer.spelling

    for request in requests(seed):
        whole = MessageWriter("p", "m", dialect, rule).write(request.entries)
        start = REASONING_FIELD if rule == "required" else None
        assert histories.write("s", request, start, write).json == encode(whole)


@pytest.mark.parametrize("replay", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_messages_of_turns_are_the_same(seed: int, replay: bool) -> None:
    """Where messages of one role are joined, and the last one gets a breakpoint, all stays as it was."""
    history, offered = History("p"), Offered((), OFFERS)
    for request in anthropic_requests(seed):
        whole = AnthropicWriter("p", "m", replay=replay)
        messages = whole.write(request.entries)
        written = history.write(request, offered, replay=replay)
        assert written.all().json == encode(messages)
        assert written.names == whole.after.names
        users = [message for message in messages if message["role"] == "user"]
        assert sum(message["role"] == "user" for message in written.last) >= min(2, len(users))


def anthropic_requests(seed: int) -> list[ModelRequest]:
    """The same conversations with blank texts, calls by their own ids, thinking, and messages in between."""
    choice = random.Random(seed)
    made = []
    settled: tuple[Entry, ...] = ()
    for number in range(12):
        running = anthropic_turn(choice, number)
        for end in sorted({1, len(running) // 2, len(running)} - {0}):
            entries = (*settled, *running[:end])
            made.append(ModelRequest("m", "", entries, cache_key="s", settled=len(settled)))
        settled = (*settled, *running)
    return made


def anthropic_turn(choice: random.Random, number: int) -> tuple[Entry, ...]:
    entries: list[Entry] = [UserMessage((TextPart(choice.choice([f"question {number}", " "])),))]
    for step in range(choice.randrange(4)):
        name = f"{number}_{step}"
        seal = {"type": "thinking", "thinking": name, "signature": name}
        thought = Native("p", "m", seal)
        native = Native("p", "m", {"id": choice.choice(["toolu_0", f"toolu_{name}"])})
        if choice.random() < 0.4:
            entries.append(Reasoning((name,), thought))
            native = Native("p", "m", {**native.data, "thinking": [thought_id(seal)]})
        if choice.random() < 0.3:
            entries.append(AssistantMessage(choice.choice(["On it.", ""])))
        entries.append(FunctionCall(f"call_{name}", choice.choice(["look", "see"]), "{}", native))
        if choice.random() < 0.3:
            entries.append(UserMessage((TextPart("Faster."),)))
        entries.append(FunctionResult(f"call_{name}", "done"))
        if choice.random() < 0.3:
            entries += [AssistantMessage("So far."), UserMessage((TextPart("And?"),))]
    if choice.random() < 0.8:
        entries.append(AssistantMessage(choice.choice([f"answer {number}", " "])))
    return tuple(entries)


def test_what_is_settled_of_a_long_conversation_is_written_once() -> None:
    """The cost of a request does not grow with the turns before it."""
    history, offered = History("p"), Offered((), OFFERS)
    turn = (UserMessage((TextPart("question"),)), AssistantMessage("answer"))
    for turns in range(2, 200):
        entries = (*turn * turns, UserMessage((TextPart("now"),)))
        request = ModelRequest("m", "", entries, cache_key="s", settled=2 * turns)
        assert settled_messages(entries, 2 * turns) == 2 * turns - 2
        assert len(history.write(request, offered, replay=True).last) == 3


def test_only_what_is_new_is_written() -> None:
    histories: SettledHistories[None] = SettledHistories()
    written: list[int] = []

    def write(entries: Any, state: None) -> tuple[list[dict[str, Any]], None]:
        written.append(len(entries))
        return [{"n": n} for n in range(len(entries))], state

    entries = tuple(AssistantMessage(str(n)) for n in range(100))
    for settled, end in ((0, 10), (10, 11), (10, 12), (50, 60), (50, 61)):
        histories.write("s", ModelRequest("m", "", entries[:end], settled=settled), None, write)
    assert written == [10, 10, 1, 2, 40, 10, 11]


def test_written_json_is_embedded_whatever_else_the_value_holds() -> None:
    written = Encoded(b'[{"a":1}]')
    assert encode({"x": written, "y": 1}) == b'{"x":[{"a":1}],"y":1}'
    assert encode({"x": written, "y": 2**70}) == b'{"x":[{"a":1}],"y":%d}' % 2**70
    with pytest.raises(TypeError, match="not JSON"):
        encode({"x": object()})


def test_written_json_is_not_read_again() -> None:
    """It goes out byte for byte: parsing a long history for every request would cost what it saves."""
    assert encode({"x": Encoded(b'[1, {"a" : 2}]')}) == b'{"x":[1, {"a" : 2}]}'
