"""The pinned fields of a ledger are pinned facts of its session, on a server that keeps such facts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai import AsyncOpenAI
from tests.server import ServerProcess

from perdure import Agent, BlockingSessions, SdkError, Session, Sessions, ToolContext, handoff, tool
from perdure.sdk.connection import keeps_pins
from perdure.sdk.journal_errors import LedgerError, LedgerInvalid
from perdure.sdk.ledger import Ledger, Pinned
from perdure.sdk.pinned import LONGEST_NAME, MOST_PINNED, pin_text

from .test_runs import NAME, caller

PIN = "perdure.pin."


class Refund(Ledger):
    order_id: Pinned[str]
    approved: Pinned[str | None] = None
    note: str = ""


class Count(Ledger):
    count: Pinned[int] = 0


def changing(*changes: dict[str, Any], **options: Any) -> Any:
    """A tool that makes the next of these changes of the ledger at each call."""
    left = list(changes)

    @tool(parameters=NAME, name="work", **options)
    def work(given: Any, context: ToolContext[Refund]) -> str:
        """Work."""
        context.ledger.update(**left.pop(0))
        return "done"

    return work


async def pins(session: Session[Any]) -> dict[str, str]:
    metadata = (await session.retrieve()).metadata
    return {name.removeprefix(PIN): text for name, text in metadata.items() if name.startswith(PIN)}


def user_texts(items: Any) -> list[str]:
    return [item.content[0].text for item in items if item.type == "message" and item.role == "user"]


class Gateway(httpx2.AsyncBaseTransport):
    """Notes what is asked of a server; with `only_official`, what is perdure's own is not there."""

    def __init__(self, *, only_official: bool = False) -> None:
        self._inner = httpx2.AsyncHTTPTransport()
        self._only_official = only_official
        self.asked: list[tuple[str, str]] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        path = request.url.path
        if self._only_official and not path.startswith("/v1/"):
            return httpx2.Response(404, json={"error": {"message": "Not found."}})
        if request.method == "POST":
            what = path.partition("/sessions")[2].strip("/").partition("/")
            body = (await request.aread()).decode()
            is_result = "agent.session.input.tool_result" in body
            self.asked.append((what[2] or ("update" if what[0] else "create"), "result" if is_result else ""))
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self._inner.aclose()


@asynccontextmanager
async def through(
    gateway: Gateway, server: ServerProcess, journal: Path, **options: Any
) -> AsyncIterator[Sessions]:
    async with httpx2.AsyncClient(transport=gateway, timeout=60) as http:
        client = AsyncOpenAI(
            base_url=server.base_url, api_key=server.api_key, max_retries=0, http_client=http
        )
        async with Sessions(client=client, journal=journal, **options) as sessions:
            yield sessions


async def test_a_session_begins_with_the_facts_of_its_ledger(anywhere: Sessions) -> None:
    session = anywhere.start(caller(), ledger=Refund(order_id="A-1042"), metadata={"team": "blue"})
    result = await session.run("Hello")
    assert await pins(session) == {"order_id": "A-1042"}
    assert (await session.retrieve()).metadata["team"] == "blue"
    # They are kept, so they need not be told in the message.
    assert user_texts(result.items) == ["Hello"]
    assert await session.reconcile() == []


async def test_fields_of_any_form_can_be_pinned(sessions: Sessions) -> None:
    schema = {"type": "object", "properties": {"order_id": {"type": "string"}, "total": {"type": "number"}}}
    value = {"order_id": "A-1042", "total": 129.5}
    session = sessions.start(caller(), ledger=value, ledger_type=schema, pinned=("total",))
    await session.run("Hello")
    assert await pins(session) == {"total": "129.5"}


async def test_facts_follow_the_ledger_before_a_result_is_submitted(
    server: ServerProcess, journal_path: Path
) -> None:
    work = changing({"approved": "87.50"}, {"approved": "90.00"}, {"note": "called back"}, {"approved": None})
    gateway = Gateway()
    async with through(gateway, server, journal_path) as sessions:
        session = sessions.start(
            caller(work), ledger=Refund(order_id="A-1042"), metadata={"team": "blue", PIN + "rule": "no cash"}
        )
        seen = []
        for _ in range(4):
            await session.run("work")
            seen.append((await pins(session)).get("approved"))
        assert seen == ["87.50", "90.00", "90.00", None]
        assert await pins(session) == {"order_id": "A-1042", "rule": "no cash"}
        assert (await session.retrieve()).metadata["team"] == "blue"
    message, update, result = ("events", ""), ("update", ""), ("events", "result")
    assert gateway.asked == [
        *[("create", ""), update, result],
        *[message, update, result],
        *[message, result],
        *[message, update, result],
    ]


async def test_a_call_that_fails_changes_no_fact(sessions: Sessions) -> None:
    @tool(parameters=NAME, name="work")
    def work(given: Any, context: ToolContext[Refund]) -> str:
        """Work."""
        context.ledger.update(approved="87.50")
        raise OSError

    session = sessions.start(caller(work), ledger=Refund(order_id="A-1042"))
    await session.run("work")
    assert await pins(session) == {"order_id": "A-1042"}


async def test_where_no_facts_are_kept_they_are_told_with_each_message(
    server: ServerProcess, journal_path: Path
) -> None:
    work = changing({"approved": "87.50"})
    async with through(Gateway(only_official=True), server, journal_path) as sessions:
        session = sessions.start(caller(work), ledger=Refund(order_id="A-1042"))
        first = user_texts((await session.run("work")).items)
        second = user_texts((await session.run("Hello")).items)
        assert await pins(session) == {}
        assert await session.reconcile() == []
    assert '- order_id: "A-1042"' in first[0]
    assert "note" not in first[0]
    assert first[1:] == ["work"]
    assert '- approved: "87.50"' in second[0]
    assert second[1:] == ["Hello"]


async def test_many_calls_at_once_leave_the_facts_of_the_last_version(sessions: Sessions) -> None:
    @tool(name="slow")
    def slow(name: str, context: ToolContext[Count]) -> str:
        """Count."""
        context.ledger.update(lambda ledger: {"count": ledger.count + 1})
        return name

    session = sessions.start(caller(slow), ledger=Count())
    await session.run("three")
    assert await pins(session) == {"count": "3"}


async def test_what_another_process_changed_meanwhile_is_not_missed(
    server: ServerProcess, tmp_path: Path
) -> None:
    place: dict[str, Any] = {
        "base_url": server.url,
        "api_key": server.api_key,
        "journal": tmp_path / "journal.db",
    }
    async with Sessions(**place) as sessions, Sessions(**place) as others:
        session = sessions.start(caller(), ledger=Refund(order_id="A-1042", approved="87.50"))
        await session.run("Hello")
        other = others.attach(session.id, caller(), ledger_type=Refund)
        await other.update_ledger(approved="90.00")
        assert (await pins(session))["approved"] == "90.00"
        # The same value as the first process has last written, and yet a change.
        await session.update_ledger(approved="87.50")
        assert (await pins(session))["approved"] == "87.50"
        await asyncio.gather(
            *(each.update_ledger(approved=f"{number}.00", note="x")
              for number in range(5) for each in (session, other)),
            return_exceptions=True,
        )  # fmt: skip
        record = await session.ledger()
        assert record is not None
        assert (await pins(session))["approved"] == record.value["approved"]


async def test_the_application_changes_the_ledger_and_the_facts_follow(sessions: Sessions) -> None:
    session = sessions.start(caller(), ledger=Refund(order_id="A-1042"))
    await session.run("Hello")
    record = await session.update_ledger(approved="87.50")
    assert record.value["approved"] == "87.50"
    assert (await pins(session))["approved"] == "87.50"
    with pytest.raises(LedgerInvalid):
        await session.update_ledger(approved="x" * 513)

    # Behind the session's back: the facts follow before the next thing is said.
    journal = await sessions.journal()
    await journal.run(journal.journal.ledgers.update, session.id, form=Refund, approved="90.00")
    assert (await pins(session))["approved"] == "87.50"
    await session.run("Hello again")
    assert (await pins(session))["approved"] == "90.00"


async def test_reconcile_tells_facts_that_differ_and_puts_them_right(sessions: Sessions) -> None:
    session = sessions.start(caller(), ledger=Refund(order_id="A-1042", approved="87.50"))
    await session.run("Hello")
    metadata = (await session.retrieve()).metadata
    del metadata[PIN + "order_id"]
    await sessions.resource.update(session.id, metadata={**metadata, PIN + "approved": "1.00", "team": "x"})
    attached = sessions.attach(session.id, caller())
    assert [(drift.kind, drift.field) for drift in await attached.reconcile()] == [
        ("pin_differs", "order_id"),
        ("pin_differs", "approved"),
    ]
    assert await pins(session) == {"order_id": "A-1042", "approved": "87.50"}
    assert (await session.retrieve()).metadata["team"] == "x"
    assert await attached.reconcile() == []


async def test_a_handoff_keeps_the_facts_on_both_sides(sessions: Sessions) -> None:
    schema = {"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]}
    billing = Agent(name="Billing specialist", model="order-desk")
    front = Agent(name="Front desk", model="order-desk", handoffs=[handoff(billing, input_type=REASON)])
    first = sessions.start(front, ledger={"order_id": "A-1042"}, ledger_type=schema, pinned=["order_id"])
    session_id = await first.create("The invoice is wrong.")
    # Resumed by nothing but its id, so that the form of the ledger is not known.
    result = await sessions.resume(session_id)
    assert result.session.id != session_id
    assert await pins(first) == await pins(result.session) == {"order_id": "A-1042"}


REASON = {
    **NAME,
    "properties": {"reason": {"type": "string"}, "priority": {"type": ["string", "null"]}},
    "required": ["reason"],
}


# ---- what metadata can hold


def wide(fields: int, length: int = 8) -> dict[str, Any]:
    names = [f"{number:02d}".ljust(length, "x") for number in range(fields)]
    return {
        "ledger": dict.fromkeys(names, "v"),
        "ledger_type": {"type": "object", "properties": {name: {"type": "string"} for name in names}},
        "pinned": names,
    }


async def test_a_ledger_that_no_metadata_could_hold_is_refused_where_it_is_given(sessions: Sessions) -> None:
    sessions.start(caller(), **wide(MOST_PINNED, LONGEST_NAME))
    with pytest.raises(LedgerError, match=f"has room for {MOST_PINNED}: pin only"):
        sessions.start(caller(), **wide(MOST_PINNED + 1))
    with pytest.raises(LedgerError, match="Give it a shorter name"):
        sessions.start(caller(), **wide(1, LONGEST_NAME + 1))
    with pytest.raises(LedgerInvalid, match="keep a shorter form"):
        sessions.start(caller(), ledger=Refund(order_id="x" * 513))
    with pytest.raises(LedgerError, match="no field total to be pinned"):
        sessions.start(caller(), ledger=Refund(order_id="A-1042"), pinned=["total"])


async def test_without_room_in_the_metadata_no_session_is_created(sessions: Sessions) -> None:
    fields = wide(10)
    own = {f"own{number}": "x" for number in range(5)}
    with pytest.raises(LedgerError, match="17 pairs, and there is room for 16; 10 of them are pinned facts"):
        await sessions.start(caller(), **fields, metadata=own).run("Hello")
    journal = await sessions.journal()
    assert await journal.run(journal.journal.ledgers.pending) == []
    del own["own0"]
    session = sessions.start(caller(), **fields, metadata=own)
    await session.run("Hello")
    assert len((await session.retrieve()).metadata) == 16


async def test_a_pinned_value_that_is_too_long_fails_the_call(sessions: Sessions) -> None:
    session = sessions.start(caller(changing({"approved": "x" * 513})), ledger=Refund(order_id="A-1042"))
    result = await session.run("work")
    assert result.final_output == "It failed: work failed: LedgerInvalid."
    record = await session.ledger()
    assert record is not None
    assert record.value["approved"] is None

    @tool(parameters=NAME, name="work")
    def grows(given: Any, context: ToolContext[Refund]) -> str:
        """Twice as long as it is when the result is recorded."""
        context.ledger.update(lambda ledger: {"order_id": ledger.order_id * 2})
        context._session.sessions._journal.ledgers.update(session.id, form=Refund, order_id="x" * 300)  # type: ignore[union-attr]
        return "done"

    session.agent = caller(grows)
    result = await session.run("work")
    assert "[ledger_not_changed] work has run, but: The pinned field order_id has 600" in result.final_output


async def test_metadata_that_was_filled_up_stops_the_run_until_there_is_room(sessions: Sessions) -> None:
    agent = caller(changing({"approved": "87.50"}))
    session = sessions.start(agent, ledger=Refund(order_id="A-1042"))
    await session.run("Hello")
    before = (await session.retrieve()).metadata
    full = before | {f"own{number}": "x" for number in range(16 - len(before))}
    await sessions.resource.update(session.id, metadata=full)
    with pytest.raises(LedgerError, match="take pairs of your own out"):
        await session.run("work")
    assert (await session.retrieve()).status == "requires_action"
    await sessions.resource.update(session.id, metadata=before)
    result = await sessions.resume(session.id, agent, ledger_type=Refund)
    assert result.final_output == "It is done."
    assert (await pins(session))["approved"] == "87.50"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("A-1042", "A-1042"),
        ("Zürich, 87.50 €", "Zürich, 87.50 €"),
        ("", '""'),
        ("two\nlines", '"two\\nlines"'),
        ("half \ud800", '"half \\ud800"'),
        ("\u2028", '"\\u2028"'),
        (True, "true"),
        (129, "129"),
        ({"amount": "87.50"}, '{"amount": "87.50"}'),
    ],
)
def test_a_fact_is_the_value_itself_or_json_on_one_line(value: Any, text: str) -> None:
    assert pin_text(value) == text


# ---- which servers keep facts


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (httpx2.Response(200, json={"features": {"pinned_facts": {"active": True}}}), True),
        (httpx2.Response(200, json={"features": {"pinned_facts": {"active": False}}}), False),
        (httpx2.Response(200, json={"features": []}), False),
        (httpx2.Response(200, json=[]), False),
        (httpx2.Response(200, html="<p>Welcome</p>"), False),
        (httpx2.Response(404, json={"error": {"message": "No such route."}}), False),
        (httpx2.Response(401, json={"error": {"message": "No such key."}}), False),
        (httpx2.Response(405, text="no"), False),
    ],
)
async def test_a_server_says_whether_it_keeps_facts(answer: httpx2.Response, expected: bool) -> None:
    asked = []

    def answers(request: httpx2.Request) -> httpx2.Response:
        asked.append(str(request.url))
        return answer

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answers)) as http:
        client = AsyncOpenAI(base_url="http://it.example/team/v1", api_key="k", http_client=http)
        assert await keeps_pins(client, 0.0) is expected
        assert asked == ["http://it.example/team/perdure/v1/capabilities"]
        assert await keeps_pins(client.with_options(base_url="https://api.openai.com/v1"), 0.0) is False
        assert len(asked) == 1, "the hosted service was asked for something of ours"


# ---- on the way


async def test_a_session_that_exists_cannot_be_created(sessions: Sessions) -> None:
    attached = sessions.attach("sess_1", caller())
    with pytest.raises(SdkError, match="Session sess_1 exists already"):
        await attached.create("Hello")


def test_the_blocking_session_changes_ledger_and_facts(server: ServerProcess, journal_path: Path) -> None:
    with BlockingSessions(base_url=server.url, api_key=server.api_key, journal=journal_path) as sessions:
        session = sessions.start(caller(), ledger=Refund(order_id="A-1042"))
        session.run("Hello")
        session.update_ledger(approved="87.50")
        assert session.retrieve().metadata[PIN + "approved"] == "87.50"
        assert session.reconcile() == []


# ---- what the model sees


async def test_after_a_compaction_the_model_is_told_the_newest_value(sessions: Sessions) -> None:
    agent = caller(changing({"approved": "87.50"}, {"approved": "90.00"}))
    session = sessions.start(agent, ledger=Refund(order_id="A-1042", approved="1.00"))
    await session.run("work")
    for _ in range(3):
        await session.run("The parcel was weighed. " * 8000)
    assert "- approved: 87.50 (pinned by the application)" in (await view(session))[0]["text"]
    await session.run("work")
    note = (await view(session))[0]["text"]
    assert "- order_id: A-1042 (pinned by the application)" in note
    assert "- approved: 90.00 (pinned by the application)" in note
    assert "87.50 (pinned" not in note


async def view(session: Session[Any]) -> Any:
    """What the model sees, oldest first."""
    client = session.sessions.client
    url = f"{str(client.base_url).removesuffix('/v1/')}/perdure/v1/sessions/{session.id}/context"
    seen: Any = await client.get(url, cast_to=object)
    return seen["entries"]
