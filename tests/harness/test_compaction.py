"""The parts of a compaction: where a history is cut, what is kept word for word, how much room there is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.histories import History

from perdure.config.settings import Settings
from perdure.harness.checks import check_request
from perdure.harness.conversation import Conversation
from perdure.harness.cuts import cut_places, find_cut, is_request
from perdure.harness.entries import Shape, Shown, make_entries
from perdure.harness.excerpts import byte_size, byte_slice, clip, excerpt
from perdure.harness.facts import gather_facts, pin_paths, pinned_facts
from perdure.harness.notes import compaction_note, kept_compaction, note_entries, shown_facts
from perdure.harness.outline import outline
from perdure.harness.room import Room, Windows
from perdure.harness.tokens import FRAME, Gauge, entry_tokens, text_tokens
from perdure.models.capabilities import known_capabilities, window_named
from perdure.models.errors import ModelError
from perdure.models.messages import Capabilities, ModelRequest, ServerNote, TextPart, UserMessage
from perdure.models.registry import Resolved
from perdure.store.compactions import Compaction

SHAPE = Shape("p", "m", 1000)
TARGET = ("p", "m")
STEPS = st.lists(
    st.tuples(
        st.booleans(),  # a text
        st.integers(0, 3),  # calls
        st.permutations([0, 1, 2]),  # the order of their results
        st.booleans(),  # a result of an older asynchronous call comes between
        st.booleans(),  # a message behind them
    ),
    max_size=4,
)


def make_history(turns: list[Any]) -> History:
    history = History()
    for number, steps in enumerate(turns):
        turn = f"t{number}"
        history.user("asked", turn)
        for step, (says, calls, order, late, steered) in enumerate(steps):
            if says:
                history.says("text", step, turn=turn)
            names = [f"{turn}-{step}-{call}" for call in range(calls)]
            for name in names:
                history.calls(name, step, turn=turn)
            for place in order:
                if late and place == 1:
                    history.result(f"late-{turn}-{step}", "r", turn=turn, private={"late": True})
                if place < calls:
                    history.result(names[place], "r", turn=turn)
            if steered:
                history.user("and", turn)
    history.user("last", "end")
    return history


@given(turns=st.lists(STEPS, max_size=4))
def test_both_sides_of_every_cut_are_sound(turns: list[Any]) -> None:
    rows = make_history(turns).rows
    places = cut_places(rows)
    assert places[0] == 0
    assert places[-1] == len(rows)
    for place in places:
        for part in (rows[:place], rows[place:]):
            entries = make_entries(part, "end", SHAPE, Shown())
            check_request(ModelRequest(model="m", instructions="", entries=tuple(entries)))
            results = [row for row in part if row.type == "function_call_output" and not row.private]
            calls = {row.data["call_id"] for row in part if row.type == "function_call"}
            assert {row.data["call_id"] for row in results} == calls


@given(turns=st.lists(STEPS, min_size=1, max_size=4), keep=st.integers(0, 400))
def test_a_cut_keeps_the_newest_input_and_carries_what_is_being_done(turns: list[Any], keep: int) -> None:
    rows = make_history(turns).rows
    for running in ("end", f"t{len(turns) - 1}"):
        shown = [row for row in rows if running == "end" or row.turn_id != "end"]
        cut = find_cut(shown, running, keep, 1000)
        if cut is None:
            continue
        assert shown[: len(cut.prefix)] == list(cut.prefix)
        assert 0 < len(cut.prefix) < len(shown), "the newest step or input stays"
        asked = [row for row in cut.prefix if is_request(row) and row.turn_id == running]
        assert list(cut.carried) == asked


def test_results_that_no_model_has_seen_are_never_cut_off() -> None:
    history = History()
    history.user("old", "t0")
    history.says("done", 0, turn="t0")
    history.user("look it up", "t1")
    history.calls("c1", 0, turn="t1")
    history.result("c1", "r" * 4000, turn="t1")
    history.user("quickly", "t1")
    cut = find_cut(history.rows, "t1", 0, 100_000)
    assert cut is not None
    assert [row.data.get("call_id") for row in cut.prefix] == [None, None, None]
    assert [row.data["content"][0]["text"] for row in cut.carried] == ["look it up"]


def test_a_compacted_conversation_shows_a_note_and_takes_in_no_change_of_what_it_covers() -> None:
    history = History()
    history.user("old", "t0")
    history.calls("c1", 0, turn="t0", private={"async": True})
    history.says("done", 1, turn="t0")
    history.user("new", "t1")
    conversation = Conversation(history.rows)
    conversation.compact(note_of(through=3))
    conversation.update(history.rows[1:2])
    entries = conversation.entries("p", "m", "t1", 1000)
    assert [type(entry) for entry in entries] == [ServerNote, UserMessage]
    # Without the cache the same is read from the store.
    assert Conversation(history.rows[3:], note_of(through=3)).entries("p", "m", "t1", 1000) == entries
    conversation.compact(note_of(through=4, carried=[4]))
    assert conversation.entries("p", "m", "t1", 1000)[1:] == entries[1:]


def note_of(
    through: int = 1, pins: tuple[dict[str, Any], ...] = (), carried: list[int] | None = None, **data: Any
) -> Compaction:
    known = {"summary": "They spoke.", "requests": [], "earlier": 0, "open": [], "subagents": []}
    return Compaction(
        number=1,
        through_pos=through,
        method="summary",
        data={**known, "carried": carried or [], **data},
        pins=pins,
        tokens={},
        model=None,
        dropped={},
    )


def test_a_note_marks_what_is_over_and_names_what_is_open() -> None:
    note = note_of(
        requests=[{"text": "refund it", "status": "completed"}, {"text": "stop", "status": "cancelled"}],
        earlier=7,
        open=[{"call_id": "call_1", "name": "survey", "arguments": "{}"}],
        subagents=["sub_1: audits the books (running)"],
    )
    text = compaction_note(note, {"order": "A-1042"}, 100)
    assert '- "refund it" (completed)' in text
    assert '- "stop" (cancelled by the user)' in text
    assert "- 7 earlier requests, all of them over" in text
    assert "- survey (call_1): {}" in text
    assert "- sub_1: audits the books (running)" in text
    assert "- order: A-1042 (pinned by the application)" in text


def test_facts_are_found_by_rule_and_keep_their_digits() -> None:
    history = History()
    history.user("Order A-1042 cost 129.90, and INV-2026-7 is open.")
    history.calls("c1", 0)
    history.rows[-1].data["arguments"] |= {"order_id": "B-7", "verbose": True}  # type: ignore[index]
    history.result("c1", '{"order_id": "B-7", "lines": [{"unitPrice": 10.50}], "status": "packed"}')
    facts = gather_facts((), history.rows, {})
    found = {(fact["name"], fact["value"]): fact["source"] for fact in facts}
    assert found == {
        ("code", "A-1042"): "said by the user",
        ("code", "INV-2026-7"): "said by the user",
        ("amount", "129.90"): "said by the user",
        ("order_id", "B-7"): "argument of f",
        ("unitPrice", "10.50"): "result of f, c1",
    }
    assert facts[0]["pos"] == 3, "what was referenced last comes first"


def test_facts_that_come_again_move_to_the_front() -> None:
    history = History()
    for number, order in enumerate(["A-1", "A-2", "A-1"]):
        history.calls(f"c{number}", number)
        history.rows[-1].data["arguments"]["order_id"] = order
    first = gather_facts((), history.rows[:2], {})
    assert [fact["value"] for fact in first] == ["A-2", "A-1"]
    assert [fact["value"] for fact in gather_facts(first, history.rows[2:], {})] == ["A-1", "A-2"]


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("$.a.total", ["129.90"]),
        ("f:$.a.total", ["129.90"]),
        ("g:$.a.total", []),
        ("$..total", ["129.90", "5"]),
        ("$[", []),
    ],
)
def test_facts_are_pinned_by_path(path: str, values: list[str]) -> None:
    history = History()
    history.calls("c1", 0)
    history.result("c1", '{"a": {"total": 129.90}, "b": {"total": 5}}')
    paths = pin_paths({"perdure.pin_path.amount": path}, {"amount": "$.ignored"})
    facts = gather_facts((), history.rows, paths)
    assert [fact["value"] for fact in facts if fact["kind"] == "path"] == values
    assert pinned_facts({"perdure.pin.a": "x", "other": "y"}) == {"a": "x"}


def test_facts_of_paths_are_always_shown_and_others_while_there_is_room() -> None:
    pins = [
        {"name": "p", "value": "v" * 100, "source": "s", "kind": "path"},
        *({"name": "r", "value": str(n), "source": "s", "kind": "rule"} for n in range(100)),
    ]
    assert len(shown_facts(pins, 0)) == 1
    assert 1 < len(shown_facts(pins, 100)) < 101


@given(st.lists(st.text(max_size=3000), max_size=30), st.integers(100, 2000))
def test_an_outline_is_never_longer_than_its_room(texts: list[str], tokens: int) -> None:
    history = History()
    for number, text in enumerate(texts):
        history.user(text, f"t{number}")
        history.says(text or "-", 0, turn=f"t{number}")
    assert text_tokens(outline(history.rows, "before " * 2000, tokens)) <= tokens + 100


@given(st.text(), st.integers(0, 200), st.integers(0, 200))
def test_parts_of_a_text_are_cut_between_characters(text: str, start: int, length: int) -> None:
    part = byte_slice(text, start, start + length)
    assert byte_size(part) <= length
    assert part in text.encode("utf-8", "replace").decode()
    assert len(clip(text, 50)) <= 50


@given(st.text(min_size=1, max_size=5000), st.integers(0, 3000))
def test_an_excerpt_is_the_text_or_shorter_than_its_limit_and_notice(text: str, limit: int) -> None:
    shown = excerpt(text, limit, "call_1")
    assert shown is text or (byte_size(shown) <= limit + 300 and "call_1" in shown)


def test_a_gauge_believes_more_and_doubts_less() -> None:
    gauge = Gauge()
    gauge.learn(10_000, 20_000, TARGET)
    assert gauge.tokens(1000, TARGET) == 2000
    gauge.learn(10_000, 10, TARGET)
    assert 1600 < gauge.tokens(1000, TARGET) < 2000, "one small report does not make the next request short"
    for _ in range(100):
        gauge.learn(10_000, 10, TARGET)
    assert gauge.tokens(1000, TARGET) >= 800
    assert gauge.tokens(1000, ("p", "another")) == 1000
    gauge.learn(100, 5000, TARGET)
    assert gauge.tokens(1000, TARGET) < 1000


@pytest.mark.parametrize(
    ("message", "window"),
    [
        ("This model's maximum context length is 8192 tokens. However, you requested 9001 tokens", 8192),
        ("prompt is too long: 215000 tokens > 200000 maximum", 200_000),
        ("input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000", 190_000),
        ("the request exceeds the available context size (n_ctx 4096)", 4096),
        ("The input token count exceeds the maximum number of tokens allowed 1048576.", 1_048_576),
        ("Your request is too long.", None),
    ],
)
def test_the_window_is_read_from_a_refusal(message: str, window: int | None) -> None:
    assert window_named(message, 2_000_000) == window


@pytest.mark.parametrize(
    ("protocol", "name", "window", "output"),
    [
        ("responses", "gpt-4o-mini-2024-07-18", 128_000, 16_384),
        ("chat", "openai/gpt-4.1-nano", 1_047_576, 32_768),
        ("responses", "gpt-5", 400_000, 128_000),
        ("responses", "gpt-5.4", 1_050_000, 128_000),
        ("responses", "gpt-4", 8192, 4096),
        ("responses", "o3", 200_000, 100_000),
        ("chat", "llama3.3", None, None),
        ("scripted", "gpt-4o", None, None),
    ],
)
def test_windows_are_known_by_name(protocol: str, name: str, window: int | None, output: int | None) -> None:
    known = known_capabilities(protocol, name)
    assert (known.context_window, known.max_output_tokens) == (window, output)


def resolved(**known: Any) -> Resolved:
    return Resolved(None, "p", "m", Capabilities(**known))  # type: ignore[arg-type]


@pytest.mark.parametrize("window", [1024, 4096, 8192, 128_000, 1_000_000])
def test_the_parts_of_a_room_fit_into_it(window: int) -> None:
    room = Room.of(resolved(context_window=window), Settings(), Windows())
    note = room.summary + room.requests + room.pins
    assert 0 < room.begin < room.trigger <= room.most < window
    assert note + room.keep < room.trigger, "a compaction could never help"
    assert room.is_known


def test_an_unknown_window_is_assumed_until_a_refusal_tells() -> None:
    windows = Windows()
    assert (Room.of(resolved(), Settings(), windows).window, windows.learned) == (128_000, {})
    error = ModelError("context_length_exceeded", "The maximum context length is 8192 tokens.")
    windows.learn(resolved(), error, 9000)
    room = Room.of(resolved(), Settings(), windows)
    assert (room.window, room.is_known) == (8192, True)
    windows.learn(resolved(), ModelError("context_length_exceeded", "Too long."), 7000)
    assert Room.of(resolved(), Settings(), windows).window == 5600
    assert Room.of(resolved(context_window=4096), Settings(), windows).window == 4096


def test_images_leave_in_batches_and_the_newest_one_stays() -> None:
    settings = Settings.model_validate({"context": {"images": 4}})
    room = Room.of(resolved(context_window=100_000), settings, Windows())
    history = History()
    conversation = Conversation(())
    counts = []
    for number in range(12):
        part = {"type": "input_image", "image_url": f"data:image/png;base64,{number:08}"}
        history.add("message", {"role": "user", "content": [part]}, turn=f"t{number}")
        conversation.update(history.rows[-1:])
        view = conversation.view("p", "m", f"t{number}", room, {})
        shown = [entry for entry in view if isinstance(entry, UserMessage)]
        counts.append(sum(not isinstance(entry.content[0], TextPart) for entry in shown))
        assert not isinstance(shown[-1].content[0], TextPart)
    assert counts == [1, 2, 3, 4, 2, 3, 4, 2, 3, 4, 2, 3]


def test_what_a_provider_compacted_is_for_its_own_model_and_an_outline_for_others() -> None:
    kept = {"provider": "p", "model": "m", "data": {"id": "cmp_1", "items": []}, "tokens": 70, "kept": 30}
    compaction = note_of(native=kept, requests=[{"text": "refund it", "status": "completed"}])
    own, rest = note_entries(compaction, {"order": "A-1042"}, 100, ("p", "m"))
    assert own.compacted is not None
    assert kept_compaction(own.compacted) == kept
    assert entry_tokens(own) == 70 + FRAME
    (part,) = rest.content
    assert isinstance(part, TextPart)
    assert "They spoke." not in part.text
    assert '- "refund it" (completed)' in part.text
    assert "A-1042" in part.text
    for other in (("p", "m2"), ("q", "m")):
        (told,) = note_entries(compaction, {"order": "A-1042"}, 100, other)
        assert told == ServerNote((TextPart(compaction_note(compaction, {"order": "A-1042"}, 100)),))
        assert "They spoke." in str(told)


def test_a_conversation_that_is_switched_between_models_shows_each_what_it_can_read() -> None:
    kept = {"provider": "p", "model": "m", "data": {"id": "cmp_1", "items": []}, "tokens": 70, "kept": 30}
    history = History()
    history.user("new", "t1")
    conversation = Conversation(history.rows, note_of(through=0, native=kept))
    own = conversation.entries("p", "m", "t1", 1000)
    size = conversation.estimate
    assert len(own) == len(conversation.entries("q", "m", "t1", 1000)) + 1
    assert conversation.estimate != size
    assert conversation.entries("p", "m", "t1", 1000) == own
