"""The rows of a session with subagents, and what holds of them at any moment and at rest."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlalchemy import URL, Engine, create_engine, make_url, select

from perdure.harness.checks import check_request
from perdure.harness.entries import Shape, Shown, make_entries
from perdure.models.messages import ModelRequest
from perdure.store.rows import ItemRow
from perdure.store.tables import (
    calls,
    events,
    inbox,
    items,
    sessions,
    subagents,
    turns,
    waits,
    workers,
)

from .family_script import HELD, LIMIT, answer_to, words_of

Row = Mapping[str, Any]
ENDED = frozenset({"completed", "failed", "cancelled"})
NEAR_US = 5_000_000
"""A wait that ends sooner is not at rest."""


def rows_engine(database: str) -> Engine:
    """Reads the database of a server beside it: a path of a file, or the URL of a PostgreSQL database."""
    if "://" not in database:
        return create_engine(URL.create("sqlite", database=database), isolation_level="AUTOCOMMIT")
    url = make_url(database).set(drivername="postgresql+psycopg")
    return create_engine(url, isolation_level="REPEATABLE READ")


@dataclass(frozen=True)
class Rows:
    """All that is stored of a session, as one transaction has seen it; each table in its order."""

    session: Row
    turns: list[Row]
    items: list[Row]
    inbox: list[Row]
    waits: list[Row]
    subagents: list[Row]
    calls: list[Row]
    said: list[Row]
    workers: list[Row]

    @property
    def root(self) -> str:
        return str(self.session["agent_id"])

    @cached_property
    def turn(self) -> dict[str, Row]:
        return {turn["id"]: turn for turn in self.turns}

    @cached_property
    def unfinished(self) -> list[Row]:
        return [turn for turn in self.turns if turn["status"] not in ENDED]

    @cached_property
    def running(self) -> list[Row]:
        """The unfinished turns of subagents."""
        return [turn for turn in self.unfinished if turn["subagent_id"] is not None]

    @property
    def reserved(self) -> int:
        return int((self.session["spent"] or {}).get("reserved", 0))

    def turns_of(self, agent_id: str) -> list[Row]:
        return [turn for turn in self.turns if turn["agent_id"] == agent_id]

    def items_of(self, agent_id: str) -> list[Row]:
        return [item for item in self.items if item["agent_id"] == agent_id]

    def in_turn(self, turn: Row) -> list[Row]:
        return [item for item in self.items if item["turn_id"] == turn["id"]]

    def of_type(self, kind: str, status: str | None = None) -> list[Row]:
        found = (item for item in self.items if item["type"] == kind)
        return [item for item in found if status is None or item["status"] == status]

    @cached_property
    def user_texts(self) -> list[str]:
        return [text_of(item) for item in self.items_of(self.root) if is_said(item)]


def read_rows(engine: Engine, session_id: str) -> Rows:
    """Everything of a session, at one moment."""
    with engine.connect() as conn:
        is_file = conn.dialect.name == "sqlite"
        if is_file:
            conn.exec_driver_sql("BEGIN")
        try:
            found = [
                [row._mapping for row in conn.execute(query)]
                for query in (
                    select(sessions).where(sessions.c.id == session_id),
                    *(
                        select(table).where(table.c.session_id == session_id).order_by(table.c.pos)
                        for table in (turns, items, inbox)
                    ),
                    select(waits).where(waits.c.session_id == session_id),
                    *(
                        select(table).where(table.c.session_id == session_id).order_by(table.c.pos)
                        for table in (subagents, calls)
                    ),
                    select(events).where(events.c.session_id == session_id).order_by(events.c.seq),
                    select(workers),
                )
            ]
            (session,) = found[0]
            said = [entry for row in found[7] for entry in row["entries"]]
            rows = Rows(session, *found[1:7], said, found[8])
        finally:
            if is_file:
                conn.exec_driver_sql("ROLLBACK")
        return rows


def text_of(item: Row) -> str:
    return "".join(part["text"] for part in item["data"]["content"])


def is_said(item: Row) -> bool:
    """Whether an item is a message that no model of its agent wrote: of the user, or as a task."""
    return bool(item["type"] == "message" and item["step"] is None)


def is_input(item: Row) -> bool:
    """Whether an item is a request to its agent."""
    told = item["type"] == "agent_message" and bool((item["private"] or {}).get("input"))
    return told or is_said(item)


def _report(item: Row) -> Row | None:
    found: Row | None = (item["private"] or {}).get("report") if item["type"] == "agent_message" else None
    return found


def _result(item: Row) -> Any:
    """What a coordination call has answered: JSON, or a sentence if it failed."""
    told = (item["private"] or {}).get("result")
    return json.loads(told) if told is not None and item["status"] == "completed" else told


# ---- at any moment


def check_rows(rows: Rows, limit: int) -> None:
    """Whatever the server is doing, and whatever the model says; `limit` subagents may run at once."""
    _check_order(rows)
    _check_counts(rows)
    assert len(rows.running) <= limit, f"{len(rows.running)} run, {limit} may"
    _check_waits(rows)
    for subagent in rows.subagents:
        _check_reports(rows, subagent)
    _check_coordination(rows)
    _check_usage(rows)
    _check_said(rows)
    _check_histories(rows)


def check_always(rows: Rows, accepted: list[str]) -> None:
    """The same, and what the script leads to; `accepted` are the texts that the user has said."""
    check_rows(rows, LIMIT)
    for subagent in rows.subagents:
        _check_texts(rows, subagent)
    applied = rows.user_texts
    assert applied == accepted[: len(applied)], f"applied {applied} of {accepted}"
    for turn in rows.turns:
        error = turn["error"]
        fine = error is None or (error["code"], turn["subagent_id"] is None) == ("server_error", False)
        assert fine, f"a turn failed that should not: {turn}"


def _check_order(rows: Rows) -> None:
    for name, table, last in (
        ("items", rows.items, rows.session["item_pos"]),
        ("turns", rows.turns, rows.session["turn_pos"]),
        ("subagents", rows.subagents, rows.session["subagents"]),
    ):
        assert [row["pos"] for row in table] == list(range(1, last + 1)), f"{name} are not dense"
    for item in rows.items:
        assert rows.turn[item["turn_id"]]["agent_id"] == item["agent_id"], f"an item of another agent: {item}"
    for agent in {turn["agent_id"] for turn in rows.turns}:
        places = [rows.turn[item["turn_id"]]["pos"] for item in rows.items_of(agent)]
        assert places == sorted(places), f"items of a turn stand behind those of a later one: {agent}"
    outputs = Counter(item["data"]["call_id"] for item in rows.of_type("function_call_output"))
    assert all(count == 1 for count in outputs.values()), "a call has two results"


def _check_counts(rows: Rows) -> None:
    session = rows.session
    assert session["subagents_running"] == len(rows.running), (session, rows.running)
    of_root = [turn["id"] for turn in rows.unfinished if turn["subagent_id"] is None]
    assert of_root == ([] if session["turn_id"] is None else [session["turn_id"]])
    for each in rows.subagents:
        own = [turn["id"] for turn in rows.running if turn["subagent_id"] == each["id"]]
        assert own == ([] if each["turn_id"] is None else [each["turn_id"]]), f"{each} has {own}"
        assert each["status"] == "active" or not own, f"a closed subagent runs: {each}"
        assert (each["closed_us"] is None) == (each["status"] == "active"), each
    assert session["inbox_count"] == len(rows.inbox)
    statuses = {turn["status"] for turn in rows.unfinished if turn["subagent_id"] is None}
    if any(row["kind"] == "message" for row in rows.inbox if row["agent_id"] == session["agent_id"]):
        # Said behind a cancel that is not settled yet: its turn comes with that.
        statuses = statuses or {"queued"}
    expected = "idle" if not statuses else "requires_action" if statuses == {"waiting"} else "in_progress"
    answered = session["status"] == "in_progress" and expected == "requires_action"
    assert session["status"] == expected or answered, f"{session['status']} with {statuses}"


def _check_waits(rows: Rows) -> None:
    begun = {item["id"]: item for item in rows.of_type("wait_for_subagents_call", "in_progress")}
    assert {wait["item_id"] for wait in rows.waits} == begun.keys(), "waits and their items do not match"
    for wait in rows.waits:
        item = begun[wait["item_id"]]
        assert wait["agent_id"] == item["agent_id"]
        assert rows.turn[item["turn_id"]]["status"] not in ENDED, "a turn that has ended waits"
    for item in rows.items:
        over = item["status"] != "in_progress" or rows.turn[item["turn_id"]]["status"] not in ENDED
        assert over or item["type"] == "function_call", f"in progress behind the end of its turn: {item}"


def _check_reports(rows: Rows, subagent: Row) -> None:
    """Each turn that ended was told of once: by an item, by what is still in the inbox, or with a call."""
    ended = [turn for turn in rows.turns_of(subagent["id"]) if turn["status"] in ENDED]
    items_of = [item for item in rows.items if _report(item) and _sender(item) == subagent["id"]]
    queued = [
        row
        for row in rows.inbox
        if row["kind"] == "report" and rows.turn[row["payload"]["turn"]]["subagent_id"] == subagent["id"]
    ]
    above = {subagent["parent_agent_id"]}
    assert {item["agent_id"] for item in items_of} | {row["agent_id"] for row in queued} <= above
    with_calls = [
        item
        for kind in ("interrupt_subagent_call", "close_subagent_call")
        for item in rows.of_type(kind, "completed")
        if item["data"]["recipient_agent_id"] == subagent["id"] and "last_text" in _result(item)
    ]
    told = [str((_report(item) or {})["status"]) for item in items_of]
    told += [str(rows.turn[row["payload"]["turn"]]["status"]) for row in queued]
    found = Counter([*told, *("cancelled" for _ in with_calls)])
    expected = Counter(turn["status"] for turn in ended)
    assert found == expected, f"{subagent['name']} ended turns {expected}, and told of {found}"
    certain = [turn["status"] for turn in ended if turn["status"] != "cancelled"]
    assert [status for status in told if status != "cancelled"] == certain, "reports in another order"
    turns_queued = [row["payload"]["turn"] for row in queued]
    assert len(set(turns_queued)) == len(turns_queued), "a report is queued twice"


def _sender(item: Row) -> str:
    return str(item["data"]["sender_agent_id"])


def _check_texts(rows: Rows, subagent: Row) -> None:
    """What is reported is what came of the turn."""
    reports = [item for item in rows.items if _report(item) and _sender(item) == subagent["id"]]
    by_status: dict[str, list[str]] = {}
    for item in reports:
        by_status.setdefault(str((_report(item) or {})["status"]), []).append(text_of(item))
    for text in by_status.get("cancelled", ()):
        assert text.startswith("The subagent was interrupted"), text
    turns_of = rows.turns_of(subagent["id"])
    failed = [turn for turn in turns_of if turn["status"] == "failed"]
    for turn, text in zip(failed, by_status.get("failed", ()), strict=False):
        kind, tag = words_of(text_of(_asked(rows, turn)))
        assert kind == "break", turn
        assert "server_error" in text, text
        assert f"half {tag}" in text, text
    completed = [turn for turn in turns_of if turn["status"] == "completed"]
    for turn, text in zip(completed, by_status.get("completed", ()), strict=False):
        expected = answer_to(text_of(_asked(rows, turn)))
        assert text == expected, f"reported {text!r}, expected {expected!r}"


def _asked(rows: Rows, turn: Row) -> Row:
    """The newest request that the answer of a turn has seen."""
    own = rows.in_turn(turn)
    written = [item["pos"] for item in own if item["type"] == "message" and item["step"] is not None]
    end = max(written, default=None)
    inputs = [item for item in own if is_input(item) and (end is None or item["pos"] < end)]
    return inputs[-1]


def _check_coordination(rows: Rows) -> None:
    """Each call was made once, or not at all if it failed."""
    created = Counter(text_of(item) for item in rows.of_type("create_subagent_call", "completed"))
    made = Counter("".join(part["text"] for part in each["instructions"]) for each in rows.subagents)
    assert created == made, f"created were {created}, there are {made}"
    assert all(count == 1 for count in created.values()), f"a task was given twice: {created}"
    names = [each["name"] for each in rows.subagents]
    assert len(set(names)) == len(names), names
    for each in rows.subagents:
        first = rows.items_of(each["id"])[0]
        assert text_of(first) == "".join(part["text"] for part in each["instructions"]), first
    sent = Counter(
        (item["data"]["recipient_agent_id"], text_of(item))
        for item in rows.of_type("send_subagent_input_call", "completed")
    )
    heard = Counter(
        (item["agent_id"], text_of(item))
        for item in rows.of_type("agent_message")
        if is_input(item) and _report(item) is None
    )
    heard += Counter(
        (row["agent_id"], "".join(part["text"] for part in row["payload"]["content"]))
        for row in rows.inbox
        if row["kind"] == "message" and row["agent_id"] != rows.root
    )
    assert sent == heard, f"said to subagents: {sent}, heard by them: {heard}"
    assert all(count == 1 for count in sent.values()), f"said twice: {sent}"


def _check_usage(rows: Rows) -> None:
    ended = [turn for turn in rows.turns if turn["status"] in ENDED]
    usage = rows.session["usage"]
    if any(turn["usage_unknown"] for turn in ended):
        assert usage is None
        return
    told = [turn["usage"]["total_tokens"] for turn in ended if turn["usage"] is not None]
    found = None if usage is None else usage["total_tokens"]
    assert found == (sum(told) if told else None), f"the session used {found}, its turns {told}"


def _check_said(rows: Rows) -> None:
    """Events are about the root and what it has to do with subagents."""
    own = {item["id"] for item in rows.items_of(rows.root)}
    turns_of_root = {turn["id"] for turn in rows.turns_of(rows.root)}
    assert len(rows.said) == rows.session["seq"]
    for entry in rows.said:
        assert entry.get("item", None) in own | {None}, f"an event about an item of a subagent: {entry}"
        assert entry.get("turn", None) in turns_of_root | {None}, f"about a turn of a subagent: {entry}"
    ends = Counter(
        entry["turn"]
        for entry in rows.said
        if entry["type"].rpartition(".")[2] in ENDED and entry["type"].startswith("agent.session.turn.")
    )
    ended = {turn["id"] for turn in rows.turns if turn["status"] in ENDED} & turns_of_root
    assert ends == Counter(ended), "a turn was not said to end once"
    kinds = Counter((entry["type"], entry["subagent"]) for entry in rows.said if "subagent" in entry)
    for each in rows.subagents:
        assert kinds["agent.session.subagent.created", each["id"]] == 1
        turned = [kinds[f"agent.session.subagent.{kind}", each["id"]] for kind in ("closed", "active")]
        assert turned[0] - turned[1] == (each["status"] == "closed"), f"{each} was said to be {turned}"


def _check_histories(rows: Rows) -> None:
    """The next request of each agent that could make one is as providers take it; nobody is compacted."""
    running = {turn["agent_id"]: turn for turn in rows.unfinished}
    shape = Shape("scripted", "family", 1 << 20)
    for agent in {turn["agent_id"] for turn in rows.turns}:
        turn = running.get(agent)
        if turn is not None and turn["status"] == "waiting":
            continue
        history = [ItemRow(**item) for item in rows.items_of(agent)]
        answered = {item.data["call_id"] for item in history if item.type == "function_call_output"}
        open_calls = [i for i in history if i.type == "function_call" and i.data["call_id"] not in answered]
        if open_calls and turn is not None and open_calls[-1].turn_id == turn["id"]:
            continue
        entries = make_entries(history, "" if turn is None else turn["id"], shape, Shown())
        check_request(ModelRequest("family", "", tuple(entries)))


# ---- at rest


def restless(rows: Rows, released: Set[str], pids: Set[int]) -> str | None:
    """Why a session is not at rest: it has to go on by itself. None if it is.

    Args:
        released: the gates that are open.
        pids: the processes that live.
    """
    held: set[str] = set()
    waiting = {wait["agent_id"] for wait in rows.waits}
    owing: set[str] = set()
    for turn in rows.unfinished:
        agent = turn["agent_id"]
        if turn["status"] == "waiting":
            owed = [call for call in rows.calls if call["turn_id"] == turn["id"] and call["state"] == "open"]
            if not owed:
                return f"{turn} waits for nothing"
            owing.add(agent)
        elif agent in waiting:
            problem = _ending(rows, agent)
            if problem is not None:
                return problem
        elif turn["status"] == "in_progress" and _is_held(rows, turn, released):
            held.add(agent)
        else:
            return f"nothing holds {turn}"
    busy = {turn["agent_id"] for turn in rows.unfinished}
    for row in rows.inbox:
        stays = {
            "report": row["agent_id"] not in busy or row["agent_id"] in held | waiting | owing,
            "message": row["agent_id"] in held | owing,
        }
        if not stays.get(row["kind"], False):
            return f"nobody has looked at {row}"
    works = bool(rows.running) or bool(busy - owing)
    if rows.reserved != len(held):
        return f"{rows.reserved} calls are reserved, {len(held)} under way"
    owner = rows.session["owner"]
    if (owner is not None) != works:
        return f"owned by {owner}, at work: {sorted(busy)}"
    if works and not any(worker["id"] == owner and worker["pid"] in pids for worker in rows.workers):
        return f"owned by {owner}, which is gone"
    if not rows.waits and rows.session["wake_at"] is not None:
        return f"it would be woken at {rows.session['wake_at']}"
    return None


def _ending(rows: Rows, agent: str) -> str | None:
    """Why the waits of an agent have to end by themselves."""
    running = {turn["subagent_id"] for turn in rows.running}
    for wait in rows.waits:
        if wait["agent_id"] != agent:
            continue
        rest = [target not in running for target in wait["targets"]]
        if any(rest) if wait["for_any"] else all(rest):
            return f"{wait} is over"
        if wait["deadline_us"] < time.time() * 1e6 + NEAR_US:
            return f"{wait} ends soon"
    return None


def _is_held(rows: Rows, turn: Row, released: Iterable[str]) -> bool:
    own = rows.in_turn(turn)
    inputs = [text_of(item) for item in own if is_input(item)]
    if not inputs:
        return False
    if turn["subagent_id"] is None:
        kind, _, tag = inputs[-1].partition(" ")
        return kind == "work" and tag not in released and _writes(own)
    kind, tag = words_of(inputs[-1])
    if kind not in HELD or tag in released:
        return False
    # What a thought shows is not known while it goes on.
    return _writes(own) or kind == "hush"


def _writes(own: list[Row]) -> bool:
    """Whether a model call has begun to write, as far as its turn shows."""
    return any(item["type"] in ("message", "reasoning") and item["status"] == "in_progress" for item in own)
