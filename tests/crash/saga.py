"""A session that outgrows its model's window, told so that each thing in it has a mark of its own.

The model is a strict provider that counts tokens. It knows from the marks of a request alone whether the
beginning of the history is there, once: in a summary or as it was, and whether the facts are.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.providers.answers import Answer, Call, Text, Usage, answer
from tests.providers.responses import ResponsesProvider
from tests.providers.server import Recorded, text_of

from .database import Storage, check_database
from .drive import Drive
from .model import MODEL, Model, provider_table
from .scenario import function, owed, until_idle
from .witness import Seen

WINDOW = 4608
TURNS = 12
LOOKUPS = (3, 6, 8, 11)
"""Turns in which a function is called."""
MARK = re.compile(r"\[[mar]\d+\]")
ASKS_FOR_SUMMARY = "Write that summary now"
NOTE = "this note stands in its place"
SUMMARY = re.compile(r"What happened:\n(.*)")
PINNED = "- order: A-1042 (pinned by the application)"
METADATA = {"perdure.pin.order": "A-1042", "perdure.pin_path.total": "lookup:$.total"}
TOOLS = [function("lookup", "order")]
BESIDE = {"compaction": {"async": True}}
LONG = "The parcel was opened, weighed and closed again by hand. " * 24
"""About 350 tokens: a few turns fill the window."""
SHORT = "Briefly."


def message(number: int, story: str = LONG) -> str:
    wish = "Look it up." if number in LOOKUPS else "Note it."
    return f"[m{number}] {wish} {story}"


def total(number: int) -> str:
    """A value of a result that has to stay as it was written."""
    return f"{number}29.90"


def result(number: int, story: str = LONG) -> str:
    return json.dumps({"mark": f"[r{number}]", "total": total(number), "story": story})


class SagaModel(Model):
    """Says of each message that it has noted it, and writes summaries that name all that they are about.

    `summaries` are the requests for one. While `held` is set, it waits with a summary until `let_go`.
    `steered` are messages that were answered together with the next one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.provider = ResponsesProvider(planner=self._answer, context_window=WINDOW)

    def renew(self) -> None:
        super().renew()
        self.summaries: list[Recorded] = []
        self.asked = threading.Event()
        self.held = False
        self.steered: set[int] = set()
        self._open = asyncio.Event()

    @property
    def steps(self) -> list[Recorded]:
        """The requests of steps."""
        return [request for request in self.provider.requests if request not in self.summaries]

    def let_go(self) -> None:
        """Write the summaries that were held, and all others."""
        self.held = False
        self._loop.call_soon_threadsafe(self._open.set)

    async def _answer(self, recorded: Recorded) -> Answer:
        entries: list[dict[str, Any]] = recorded.body["input"]
        usage = Usage(input=len(json.dumps(recorded.body)) // 4, output=30)
        if ASKS_FOR_SUMMARY in told_by(entries[-1]):
            self.summaries.append(recorded)
            self.asked.set()
            if self.held:
                await self._open.wait()
            marks = sorted(set(MARK.findall(" ".join(map(told_by, entries)))), key=_place)
            return answer(Text(f"All of it is done: {' '.join(marks)}"), usage=usage)
        last = next((entry for entry in reversed(entries) if _number(entry) is not None), None)
        if last is None:
            return answer(Text("You are welcome."), usage=usage)
        number = _number(last) or 0
        self._examine(entries, number)
        since = entries[entries.index(last) + 1 :]
        if number in LOOKUPS and not any(entry["type"] == "function_call_output" for entry in since):
            return answer(Call("lookup", {"order": f"B-{number}"}), usage=usage)
        return answer(Text(f"[a{number}] Noted. {LONG[:300]}"), usage=usage)

    def _examine(self, entries: Sequence[dict[str, Any]], number: int) -> None:
        """Whether the request shows all that was said before the newest message, and nothing of it twice."""
        notes = [told_by(entry) for entry in entries if NOTE in told_by(entry)]
        shown = Counter(
            mark for entry in entries if NOTE not in told_by(entry) for mark in MARK.findall(told_by(entry))
        )
        summarised: set[str] = set()
        if notes:
            found = SUMMARY.search(notes[0])
            summarised = set(MARK.findall(found[1])) if found else set()
            self._expect(PINNED in notes[0], f"{number}: what the application pinned is gone")
            for turn in LOOKUPS:
                kept = f"[r{turn}]" not in summarised or f": {total(turn)} (" in notes[0]
                self._expect(kept, f"{number}: a fact of turn {turn} is gone")
        wanted = {f"[m{turn}]" for turn in range(1, number + 1)} | {
            f"[a{turn}]" for turn in range(1, number) if turn not in self.steered
        }
        wanted |= {f"[r{turn}]" for turn in LOOKUPS if turn < number}
        there = summarised | shown.keys()
        self._expect(wanted <= there, f"{number}: the model is not told of {sorted(wanted - there)}")
        twice = (summarised & shown.keys()) - {f"[m{number}]"}
        self._expect(not twice, f"{number}: {sorted(twice)} is summarised and shown")
        self._expect(len(notes) < 2, f"{number}: there are several notes")
        self._expect(set(shown.values()) <= {1}, f"{number}: something is shown twice: {shown}")

    def _expect(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.provider.violations.append(otherwise)


def told_by(entry: dict[str, Any]) -> str:
    """All text of an entry of a request."""
    match entry["type"]:
        case "message":
            return text_of(entry["content"])
        case "function_call_output":
            return text_of(entry["output"])
    return ""


def _number(entry: dict[str, Any]) -> int | None:
    if entry["type"] != "message" or entry["role"] != "user" or NOTE in told_by(entry):
        return None
    found = re.match(r"\[m(\d+)\]", told_by(entry))
    return int(found[1]) if found else None


def _place(mark: str) -> tuple[int, str]:
    return int(mark[2:-1]), mark


def saga_table(base_url: str) -> str:
    """The provider's table in the settings, with the window."""
    return provider_table(base_url) + f"context_window = {WINDOW}\n"


def run_saga(drive: Drive, *, beside: bool, turns: int = TURNS) -> Seen:
    """All turns, the results of functions among them; returns the last look."""
    agent: Any = BESIDE if beside else {}
    drive.create(message(1), metadata=METADATA, model=MODEL, tools=TOOLS, **agent)
    for number in range(1, turns + 1):
        if number > 1:
            drive.say(message(number))
        if number in LOOKUPS:
            drive.answer(owed(drive.until(lambda seen: len(owed(seen)) == 1))[0], result(number))
        seen = until_idle(drive, number)
    return seen


def check_saga(drive: Drive, final: Seen, *, turns: int = TURNS, greetings: int = 0) -> None:
    """All that must be true, once the last server has ended."""
    assert drive.session_id is not None
    model = drive.model
    assert isinstance(model, SagaModel)
    assert model.provider.violations == []
    assert model.provider.overflows == 0, "a request was larger than the window"
    check_database(drive.storage, drive.session_id, drive.witness.streams)
    drive.witness.check(final)
    assert [turn["status"] for turn in final.turns] == ["completed"] * (turns - len(model.steered))
    said = final.messages("user")
    assert len(said) == turns
    for number, text in enumerate(said, start=1):
        assert text in (message(number), message(number, SHORT))
    check_summaries(drive.storage, drive.session_id)
    lookups = [number for number in LOOKUPS if number <= turns]
    check_calls(drive, final, answered=turns + len(lookups) - len(model.steered), greetings=greetings)


def check_summaries(storage: Storage, session_id: str) -> None:
    """Each compaction is about more than the one before, and its summary about exactly what it stands for."""
    items = storage.query("SELECT pos, data FROM items WHERE session_id = ? ORDER BY pos", session_id)
    rows = storage.query(
        "SELECT number, through_pos, method, data FROM compactions WHERE session_id = ? ORDER BY number",
        session_id,
    )
    assert [row[0] for row in rows] == list(range(1, len(rows) + 1))
    assert rows, "nothing was compacted"
    covered = [row[1] for row in rows]
    assert covered == sorted(set(covered))
    for _, through, method, data in rows:
        assert method == "summary"
        wanted = {mark for pos, item in items if pos <= through for mark in MARK.findall(item)}
        assert set(MARK.findall(json.loads(data)["summary"])) == wanted, "a summary of something else"


def check_calls(drive: Drive, final: Seen, *, answered: int, greetings: int = 0) -> None:
    """Every call that the provider saw is listed and counted, and no more than died is listed besides."""
    model = drive.model
    assert isinstance(model, SagaModel)
    deaths = len(drive.deaths)
    ((spent,),) = drive.storage.query("SELECT spent FROM sessions WHERE id = ?", drive.session_id)
    counted = json.loads(spent)
    rows = drive.storage.query(
        "SELECT number, purpose, outcome, input_tokens, output_tokens FROM model_calls WHERE session_id = ?"
        " ORDER BY number",
        drive.session_id,
    )
    assert [row[0] for row in rows] == list(range(1, len(rows) + 1)), "the calls are not dense"
    assert counted["model_calls"] == counted["calls"] == len(rows)
    assert "reserved" not in counted, "a call that has ended is still reserved"
    # Of a process that died when the session was idle; whoever goes on with the session counts it.
    left = len(counted.get("beside", ()))
    assert left <= deaths
    kinds = Counter((purpose, outcome) for _, purpose, outcome, _, _ in rows)
    assert kinds["step", "ok"] == answered, "a step was listed twice or not at all"
    assert {outcome for _, outcome in kinds} <= {"ok", "cancelled", "interrupted"}
    seen = {"step": len(model.steps) - greetings, "compaction": len(model.summaries)}
    for purpose, asked in seen.items():
        listed = sum(count for (of, _), count in kinds.items() if of == purpose)
        listed += left * (purpose == "compaction")
        assert asked <= listed <= asked + deaths, f"{purpose}: {asked} calls were made, and listed: {kinds}"
        assert kinds[purpose, "interrupted"] <= deaths
    used = sum(row[3] + row[4] for row in rows if row[3] is not None)
    assert final.session["usage"]["total_tokens"] == used, "what was used is not what is listed"
