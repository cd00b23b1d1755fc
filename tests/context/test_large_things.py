"""Results of megabytes, dozens of screenshots, texts that no database likes: the session goes on."""

from __future__ import annotations

import base64
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.providers.answers import Call, Text, answer

from .conftest import Desk, Desks
from .office import NOTE

pytestmark = pytest.mark.slow

MIB = 1 << 20
FIVE = 5 * MIB
WIDE = {"context_window": 200_000}


def large_text(size: int = FIVE) -> str:
    line = "2026-11-30T12:00:00Z warehouse scanner {:09} saw parcel {:09}\n"
    count = size // len(line.format(0, 0))
    return "".join(line.format(number, number * 7) for number in range(count))


def peak(desk: Desk) -> int:
    """The most memory that the server has used, in bytes."""
    status = Path(f"/proc/{desk.server.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def stored(desk: Desk) -> int:
    """The size of the database, in bytes."""
    with closing(sqlite3.connect(f"file:{desk.server.data_dir}/perdure.db?mode=ro", uri=True)) as database:
        pages, size = (
            database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size")
        )
    return int(pages * size)


def forget_peak(desk: Desk) -> None:
    Path(f"/proc/{desk.server.pid}/clear_refs").write_text("5")


def test_a_result_of_five_megabytes_costs_less_than_five_times_its_size(desks: Desks) -> None:
    desk = desks(table=WIDE, context_window=200_000)
    text = large_text()
    # What a server needs once, whatever it is given: buffers of connections, modules.
    warm = desk.open("Hello.")
    desk.office.look_up("A-1", "I have read the log.")
    desk.say(warm, "Look up A-1.", lambda _: text)
    session_id = desk.open("Hello.")
    forget_peak(desk)
    before, size = peak(desk), stored(desk)
    desk.office.look_up("A-2", "I have read the log.")
    told = desk.say(session_id, "Look up A-2.", lambda _: text)
    assert told.turn.status == "completed"
    grown = peak(desk) - before
    assert grown < 5 * len(text), f"{grown / len(text):.1f} times the payload"
    assert stored(desk) - size < 1.1 * len(text), "it is stored once"
    assert max(map(len, desk.office.requests)) < 300_000
    outputs = [item.output for item in desk.items(session_id) if item.type == "function_call_output"]
    assert outputs[-1] == text


def test_a_model_reads_on_in_a_result_that_was_cut(desks: Desks) -> None:
    desk = desks()
    session_id = desk.open("Hello.")
    text = large_text(100_000)
    assert "read_result" not in desk.office.requests[-1]
    desk.office.plans.append(answer(Call("lookup_order", {"order_id": "A-2"})))
    served = len(desk.office.requests)

    def read_on(call_id: str, offset: int) -> None:
        desk.office.plans.append(answer(Call("read_result", {"call_id": call_id, "offset": offset})))

    def look_up(_: Any) -> str:
        (call,) = desk.sessions.retrieve(session_id).required_actions
        read_on(call.call_id, 50_000)
        read_on("call_of_nobody", 0)
        desk.office.plans.append(answer(Text("Read.")))
        return text

    told = desk.say(session_id, "Look up A-2.", look_up)
    assert told.turn.status == "completed"
    cut, read, refused = desk.office.requests[served + 1 : served + 4]
    tools = [tool["name"] for tool in json.loads(cut)["tools"]]
    assert tools == ["lookup_order", "read_result"]
    assert f"of {len(text):,} bytes are not shown" in cut
    shown = json.loads(read)["input"][-1]["output"]
    assert shown.startswith("Bytes 50,000 to ")
    first, _, part = shown.partition("\n")
    assert text[50_000:].startswith(part)
    assert len(part) > 5000
    assert first.endswith(f"Read on with offset {50_000 + len(part)}.")
    assert "no stored result" in refused
    # The application is not asked for it, but sees what happened.
    calls = [item for item in desk.items(session_id) if item.type == "function_call"]
    assert [(call.name, call.status) for call in calls] == [
        ("lookup_order", "completed"),
        ("read_result", "completed"),
        ("read_result", "completed"),
    ]


def png(number: int, size: int) -> str:
    data = b"\x89PNG\r\n\x1a\n" + number.to_bytes(4, "big") * (size // 4)
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def images_in(body: str) -> list[str]:
    found = []

    def walk(value: Any) -> None:
        match value:
            case {"type": "input_image"}:
                found.append(value["image_url"])
            case dict():
                for inner in value.values():
                    walk(inner)
            case list():
                for inner in value:
                    walk(inner)

    walk(json.loads(body)["input"])
    return found


def send_screenshot(desk: Desk, session_id: str, number: int, size: int) -> None:
    desk.office.look_up(f"A-{number}", "Seen.")
    url = png(number, size)
    parts = [{"type": "input_text", "text": f"Screen {number}"}, {"type": "input_image", "image_url": url}]
    with desk.sessions.stream(
        session_id, input=f"Look at {number}.", tool_handlers={"lookup_order": lambda _: parts}
    ) as stream:
        assert stream.get_final_result().turn.status == "completed"


def test_forty_screenshots_are_sent_within_their_budget(desks: Desks) -> None:
    settings = '[context]\nimages = 10\nimage_bytes = "1 MiB"\n'
    desk = desks(settings=settings, table=WIDE, context_window=2_000_000, max_body=3 * MIB)
    session_id = desk.open("Hello.")
    sizes = [stored(desk)]
    for number in range(40):
        send_screenshot(desk, session_id, number, 100_000)
        sizes.append(stored(desk))
    assert sizes[40] - sizes[20] < 1.05 * (sizes[20] - sizes[0]), "a turn stores as much as the one before it"
    assert sizes[40] - sizes[0] < 1.2 * 40 * len(png(0, 100_000))
    assert desk.office.provider.overflows == 0
    last = desk.office.requests[-1]
    shown = images_in(last)
    assert 1 <= len(shown) <= 10
    assert shown[-1] == png(39, 100_000)
    assert "no longer shown" in last
    assert all(len(images_in(body)) <= 11 for body in desk.office.requests)
    # They leave in batches: most requests begin with what the one before them said.
    outputs = [item.output for item in desk.items(session_id) if item.type == "function_call_output"]
    assert [output[1].image_url for output in outputs] == [png(n, 100_000) for n in range(40)]


def test_the_same_image_is_sent_once_and_stored_once(desks: Desks) -> None:
    desk = desks(table=WIDE, context_window=2_000_000)
    session_id = desk.open("Hello.")
    before = stored(desk)
    for _ in range(3):
        send_screenshot(desk, session_id, 7, 500_000)
    assert images_in(desk.office.requests[-1]) == [png(7, 500_000)]
    assert stored(desk) - before < 1.2 * len(png(7, 500_000))
    outputs = [item.output for item in desk.items(session_id) if item.type == "function_call_output"]
    assert [output[1].image_url for output in outputs] == [png(7, 500_000)] * 3
    assert desk.office.requests[-1].count("the same image is shown above") == 2


def test_a_body_that_is_too_large_for_the_provider_is_sent_again_with_fewer_images(desks: Desks) -> None:
    desk = desks(table=WIDE, context_window=2_000_000, max_body=600_000)
    session_id = desk.open("Hello.")
    for number in range(12):
        send_screenshot(desk, session_id, number, 60_000)
    assert desk.office.provider.overflows >= 1
    assert len(images_in(desk.office.requests[-1])) >= 1
    assert desk.say(session_id, "Thanks.").turn.status == "completed"


def test_a_model_without_eyes_is_told_that_there_is_an_image(desks: Desks) -> None:
    settings = ""
    table = {**WIDE, "model": {}}
    desk = desks(settings=settings, table={key: value for key, value in table.items() if key != "model"})
    config = desk.server.config
    config.write_text(config.read_text() + '\n[provider.model."fake"]\nimages = false\n')
    desk.server.restart()
    desk.client.base_url = desk.server.base_url  # type: ignore[assignment]
    session_id = desk.open("Hello.")
    send_screenshot(desk, session_id, 1, 10_000)
    assert images_in(desk.office.requests[-1]) == []
    assert "this model does not see images" in desk.office.requests[-1]


def test_nul_and_lone_surrogates_are_summarised_and_pinned(desks: Desks) -> None:
    desk = desks()
    session_id = desk.open("Hello.")
    odd = '{"order_id": "A-\\u0000\\ud800-7", "note": "' + "x\u0000y " * 1500 + '"}'
    for number in range(4):
        desk.office.look_up(f"A-{number}", "Seen \u0000 it.")
        assert desk.say(session_id, f"Look up A-{number}.", lambda _: odd).turn.status == "completed"
    assert desk.office.summaries
    assert NOTE in desk.office.requests[-1]
    assert desk.context(session_id)["compactions"]


def test_a_window_that_nobody_told_is_learned_from_a_refusal(desks: Desks) -> None:
    desk = desks(table={"context_window": 100_000})
    session_id = desk.open("Hello.")
    for number in range(12):
        told = desk.say(session_id, f"Parcel {number}: " + "opened and closed again. " * 200)
        assert told.turn.status == "completed"
    assert desk.office.provider.overflows == 1, "one refusal is enough"
    assert NOTE in desk.office.requests[-1]


def test_instructions_that_fill_the_window_do_not_compact_for_ever(desks: Desks) -> None:
    desk = desks()
    instructions = "Be exact with every number and every name. " * 560  # about 6,000 tokens
    session_id = desk.open("Hello.", agent={"instructions": instructions})
    for number in range(20):
        told = desk.say(session_id, f"Short question {number}: " + "is it there? " * 5)
        assert told.turn.status == "completed"
    asked = len(desk.office.summaries)
    assert asked <= 4, "the same history is summarised again and again"
    assert desk.office.provider.overflows == 0


def test_a_message_that_never_fits_fails_its_turn_and_not_the_session(desks: Desks) -> None:
    desk = desks()
    session_id = desk.open("Hello.")
    told = desk.say(session_id, "Short.")
    assert told.turn.status == "completed"
    parts = "All of this is important, says the customer. " * 1500  # about 17,000 tokens
    with pytest.raises(Exception, match=r"context_length_exceeded|failed"):
        desk.say(session_id, parts)
    turn = desk.sessions.turns.list(session_id, limit=1).data[0]
    assert (turn.status, turn.error.code) == ("failed", "context_length_exceeded")
    assert desk.sessions.retrieve(session_id).status == "idle"
    assert desk.say(session_id, "And now?").turn.status == "completed"
    assert "And now?" in desk.office.requests[-1]
