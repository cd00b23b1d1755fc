"""One session that does everything, and what must be true of it however often its server dies."""

from __future__ import annotations

from typing import Any

from tests.providers.server import Recorded
from tests.providers.server import text_of as content_text

from .database import check_database, check_spending
from .drive import Drive
from .model import MODEL, STEERING, STEPS, STORY
from .witness import Seen, text_of

CITY: Any = {"type": "string", "minLength": 1}
NOTHING: Any = {"type": "object", "properties": {}, "additionalProperties": False}


def function(name: str, *parameters: str, **options: Any) -> Any:
    """A function tool whose parameters are texts."""
    schema = {**NOTHING, "properties": dict.fromkeys(parameters, CITY), "required": list(parameters)}
    return {"type": "function", "name": name, "description": name, "parameters": schema, **options}


TOOLS = [function("weather", "city"), function("clock", "zone"), function("survey", **{"async": True})]
SAID = ["Plan the trip.", STEERING, "Ask the surveyor.", "Tell a story.", "Thanks."]
OUTPUTS = {"weather": "7 °C", "clock": "noon", "survey": "two rivers"}
STATUSES = ["completed", "completed", "completed", "cancelled", "completed"]


def run_scenario(drive: Drive) -> Seen:
    """Plan, steer, answer, ask, get a late result, cancel, go on; returns the last look."""
    drive.create(SAID[0], model=MODEL, tools=TOOLS, reasoning={"summary": "auto"})
    drive.until(lambda _: drive.model.hold.reached.is_set())
    drive.say(SAID[1])
    drive.model.hold.release()
    for left in (2, 1):
        seen = drive.until(lambda seen, n=left: len(owed(seen)) == n and seen.status == "requires_action")
        drive.check_snapshot()
        drive.answer(owed(seen)[0], OUTPUTS[owed(seen)[0]["name"]])
    until_idle(drive, 1)
    drive.say(SAID[2])
    seen = until_idle(drive, 2)
    drive.check_snapshot()
    (survey,) = owed(seen)
    drive.answer(survey, OUTPUTS["survey"])
    until_idle(drive, 3)
    drive.say(SAID[3])
    drive.until(lambda seen: text_of(seen.items[-1]) != "" and seen.items[-1]["status"] == "in_progress")
    drive.send({"type": "agent.session.input.cancel"})
    until_idle(drive, 4)
    drive.say(SAID[4])
    return until_idle(drive, 5)


def owed(seen: Seen) -> list[Any]:
    return list(seen.session["required_actions"])


def until_idle(drive: Drive, turns: int) -> Seen:
    return drive.until(lambda seen: seen.status == "idle" and len(seen.ended) == turns)


def check_scenario(drive: Drive, final: Seen, *, others: int = 0) -> None:
    """All that must be true, once the last server has ended; `others` sessions are not the scenario's."""
    assert drive.session_id is not None
    provider = drive.model.provider
    assert provider.violations == []
    assert drive.storage.query("SELECT count(*) FROM sessions") == [(1 + others,)]
    check_database(drive.storage, drive.session_id, drive.witness.streams)
    drive.witness.check(final)
    assert [turn["status"] for turn in final.turns] == STATUSES
    assert final.messages("user") == SAID
    check_kinds(final, deaths=len(drive.deaths))
    check_requests(provider.requests, final)
    for turn, word in zip(final.turns, STEPS, strict=True):
        steps = STEPS[word]
        used = None if turn["usage"] is None else turn["usage"]["total_tokens"]
        assert used == (steps * 120 or None), "a step was charged twice or not at all"
    check_spending(drive.storage, drive.session_id, calls=sum(STEPS.values()), deaths=len(drive.deaths))
    story = [item for item in final.items if text_of(item) and STORY.startswith(text_of(item))]
    assert story
    assert {item["status"] for item in story} == {"incomplete"}


PLANNED = ["reasoning", "assistant", "function_call", "function_call_output"]
CALLED = ["reasoning", "assistant", "function_call", "function_call"]
ANSWERED = ["function_call_output", "function_call_output"]
TOLD = ["reasoning", "assistant"]


def check_kinds(final: Seen, *, deaths: int) -> None:
    """The items of each turn, less those a crash or a cancel broke off.

    A crash of the held step lets the steering message in before the step is repeated.
    """
    steered = [["user", *PLANNED, *CALLED, *ANSWERED, "user", *TOLD]]
    if deaths:
        steered.append(["user", *PLANNED, "user", *CALLED, *ANSWERED, *TOLD])
    others = [
        ["user", "function_call", "assistant"],
        ["function_call_output", "assistant"],
        ["user"],
        ["user", "assistant"],
    ]
    kinds = [
        [kind_of(item) for item in final.items if item["turn_id"] == turn["id"] and whole(item)]
        for turn in final.turns
    ]
    assert kinds[0] in steered
    assert kinds[1:] == others


def whole(item: Any) -> bool:
    return bool(item["status"] != "incomplete")


def kind_of(item: Any) -> str:
    return str(item["role"] if item["type"] == "message" else item["type"])


def check_requests(requests: list[Recorded], final: Seen) -> None:
    """The model never saw a broken-off text that was said anew, and saw all that was said."""
    finished = {turn["id"] for turn in final.turns if turn["status"] == "completed"}
    said = [text_of(item) for item in final.items if kind_of(item) == "assistant" and whole(item)]
    torn = {text_of(item) for item in final.items if item["turn_id"] in finished and not whole(item)}
    shown = [
        [
            content_text(entry["content"])
            for entry in request.body["input"]
            if entry.get("role") == "assistant"
        ]
        for request in requests
    ]
    for texts in shown:
        assert (torn - set(said)).isdisjoint(texts), "a broken-off text was shown beside its repetition"
    last = [text for text in shown[-1] if not STORY.startswith(text)]
    assert last == said[:-1]
    assert len(shown[-1]) - len(last) <= 1
