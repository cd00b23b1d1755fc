"""`tool-dispatch`: what a call of a function costs the application, beside the official client's helper."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

from openai.lib.beta.agents._tools import FunctionTool
from openai.lib.streaming.agents._dispatch import ToolDispatcher
from openai.types.beta.agent_function_call_item import AgentFunctionCallItem
from pydantic import BaseModel, Field

from bench.machine import sync_seconds
from bench.report import Row, percentile
from perdure.schema import Success
from perdure.sdk.calls import CallPair, ToolResult
from perdure.sdk.journal import Fresh, Journal
from perdure.sdk.ledger import Ledger, Pinned
from perdure.sdk.ledger_edit import LedgerEdit
from perdure.sdk.run_once import run_once
from perdure.sdk.tool import tool

ARGUMENTS = '{"order_id":"A-1042","include_history":true,"fields":["status","total"]}'
OUTPUT = {"order_id": "A-1042", "status": "shipped", "history": ["placed", "shipped"]}


class Lookup(BaseModel):
    """The arguments of the function."""

    order_id: str = Field(pattern=r"^[A-Z]-\d{4}$")
    include_history: bool = False
    fields: list[str] = []


class Order(Ledger):
    """The ledger that its calls change."""

    order_id: Pinned[str]
    looked_up: int = 0


async def look_up(value: Lookup) -> dict[str, object]:
    """Looks up an order."""
    return {**OUTPUT, "order_id": value.order_id}


def measure(directory: Path, smoke: bool) -> list[Row]:
    """Validation and dispatch without a network, then the two commits of the journal, then all of it."""
    often, seldom = (200, 20) if smoke else (5000, 500)
    served = tool(look_up, parameters=Lookup)
    helper = FunctionTool(
        Lookup, lambda value: {**OUTPUT, "order_id": value.order_id}, name="look_up", description="Looks up."
    )
    validated = _median(lambda: _checked(served.parse(ARGUMENTS)), often)
    theirs = _median(lambda: helper(json.loads(ARGUMENTS)), often)
    dispatcher = ToolDispatcher(_silent_sessions(), {"look_up": helper})
    dispatched = _median(lambda: dispatcher.dispatch(("sess_1", _item(), helper)), often)
    journaled, with_ledger, whole = _journal(directory, served, seldom)
    durable = 2 * sync_seconds(directory) * 1e3
    name = "official helper"
    return [
        Row("validate arguments", validated * 1e6, "µs", beside=theirs * 1e6, beside_what=name),
        Row(
            "begin and finish, p50", median(journaled) * 1e3, "ms", 5,
            beside=durable, beside_what="two durable 4 KiB writes",
        ),
        Row("begin and finish, p95", percentile(journaled, 0.95) * 1e3, "ms", 15),
        Row("the same with a ledger, p50", median(with_ledger) * 1e3, "ms", 8),
        Row(
            "validate, begin, run, finish, p50", median(whole) * 1e3, "ms", 8,
            beside=dispatched * 1e3, beside_what=f"{name}, which records nothing",
        ),
    ]  # fmt: skip


def _journal(directory: Path, served: Any, calls: int) -> tuple[list[float], list[float], list[float]]:
    with Journal.open(directory / "journal.db") as journal:
        record = journal.ledgers.create(Order(order_id="A-1042"))
        journal.ledgers.bind(record.key, "sess_2")

        def one(session_id: str, number: int, edit: LedgerEdit[Any] | None) -> None:
            fresh = journal.begin(CallPair(session_id, "turn_1", f"call_{number}"), "look_up", {"a": 1})
            assert isinstance(fresh, Fresh)
            journal.finish(fresh, ToolResult(True, "ok"), edit)

        def changed() -> LedgerEdit[Any]:
            edit = journal.ledgers.edit("sess_2", Order)
            assert edit is not None
            edit.update(lambda ledger: {"looked_up": ledger.looked_up + 1})
            return edit

        journaled = [_seconds(lambda n=n: one("sess_1", n, None)) for n in range(calls)]
        with_ledger = [_seconds(lambda n=n: one("sess_2", n, changed())) for n in range(calls)]
        return journaled, with_ledger, asyncio.run(_whole(journal, served, calls))


async def _whole(journal: Journal, served: Any, calls: int) -> list[float]:
    taken = []
    for number in range(calls):
        began = time.perf_counter()
        value = _checked(served.parse(ARGUMENTS))

        async def run(_: Fresh, value: Any = value) -> ToolResult:
            result: ToolResult = served.result(await served.invoke(value, None))
            return result

        pair = CallPair("sess_3", "turn_1", f"call_{number}")
        found = await run_once(journal.aio, pair, "look_up", value.model_dump(), run)
        assert found.result.success, found.result.error
        taken.append(time.perf_counter() - began)
    return taken


def _checked(outcome: Any) -> Any:
    assert isinstance(outcome, Success)
    return outcome.value


def _item() -> AgentFunctionCallItem:
    return AgentFunctionCallItem.construct(
        id="fc_1", call_id="call_1", turn_id="turn_1", name="look_up", arguments=ARGUMENTS
    )


def _silent_sessions() -> Any:
    """Sessions that take every result without a network."""
    return SimpleNamespace(events=SimpleNamespace(create=lambda *_, **__: None))


def _median(work: Callable[[], object], times: int) -> float:
    return median(_seconds(work) for _ in range(times))


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
