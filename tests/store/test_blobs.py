"""Large texts are stored once by their content, and read as they were sent."""

from __future__ import annotations

import base64
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, func, select, text

from perdure.harness.conversation import Conversation
from perdure.store import blobs as blob_rows
from perdure.store.accept import accept_once
from perdure.store.backup import back_up, restore
from perdure.store.blobs import LARGE_TEXT, Blobs, whole
from perdure.store.boundary import Boundary
from perdure.store.claims import claim
from perdure.store.compactions import load_history, read_call
from perdure.store.contexts import read_context
from perdure.store.engine import Store, is_sqlite
from perdure.store.history import list_items, load_turn_items
from perdure.store.pages import PageRequest
from perdure.store.postgres import PostgresStore
from perdure.store.purge import purge_deleted
from perdure.store.reading import open_read_only
from perdure.store.replay import read_events
from perdure.store.sessions import create_session, delete_session, read_session, resolve_settings
from perdure.store.snapshots import read_snapshot
from perdure.store.sqlite import SqliteStore
from perdure.store.steps import Call, Spent, Text, checkpoint_item, commit_step, open_item
from perdure.store.tables import blobs, calls, inbox, items
from perdure.wire.errors import Conflict
from perdure.wire.ids import new_id
from perdure.wire.inputs import EventBatch
from perdure.wire.items import Item
from perdure.wire.jsontext import dumps
from perdure.wire.sessions import SessionCreate

PROJECT = "default"
MB = 1_000_000
WHOLE = PageRequest(limit=100, order="asc")
ODD = 'nul \u0000, é, 𝄞, \\ud800 and a quote " ' * 400
Parts = list[dict[str, Any]]


def image(number: int, size: int = MB) -> str:
    """A data URL of about so many characters that no database compresses."""
    data = random.Random(number).randbytes(size * 3 // 4)
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def looked_at(url: str, said: str = "Look.") -> Parts:
    return [{"type": "input_text", "text": said}, {"type": "input_image", "image_url": url}]


async def open_store(url: str) -> Store:
    if is_sqlite(url):
        return await SqliteStore.open(url, lambda _: None)
    return await PostgresStore.open(url, lambda _: None, connections=3)


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    opened = await open_store(database_url)
    yield opened
    await opened.close()


@dataclass
class Session:
    """A session driven by the store's own functions; its owner is whoever claimed it last."""

    store: Store
    id: str
    boundary: Boundary | None = None

    @classmethod
    async def create(cls, store: Store, content: Parts | str = "Hello.") -> Session:
        said: Any = content if isinstance(content, str) else [{"role": "user", "content": content}]
        values = {"agent": {"model": "m"}, "environment": {"type": "none"}, "input": said}
        body = SessionCreate.model_validate(values)
        name, settings = await store.read(resolve_settings, PROJECT, body)
        session_id = new_id("sess")
        await store.write(create_session, session_id, PROJECT, body, name, settings)
        session = cls(store, session_id)
        await session.claim()
        return session

    async def claim(self) -> None:
        self.boundary = await self.store.write(claim, self.id, owner="w")

    async def step(self, *outputs: Text | Call, ends: bool = False) -> list[str]:
        """One step of the running turn; returns the ids of the calls that are owed."""
        boundary = self.boundary
        assert boundary is not None
        assert boundary.turn is not None
        ending = "completed" if ends else None
        place = (boundary.lease, boundary.turn.id, boundary.turn.model_calls)
        self.boundary = await self.store.write(commit_step, *place, outputs, Spent(None, 0), ending=ending)
        shown = await self.store.read(read_session, self.id, PROJECT)
        return [action.call_id for action in shown.required_actions]

    async def accept(self, *events: dict[str, Any]) -> None:
        batch = EventBatch.model_validate({"events": list(events)})
        await self.store.write(accept_once, None, self.id, PROJECT, batch.events)

    async def say(self, content: Parts) -> None:
        message = {"type": "message", "role": "user", "content": content}
        await self.accept({"type": "agent.session.input.message", "input": [message]})

    def result(self, call_id: str, output: Any, *, error: str | None = None) -> dict[str, Any]:
        boundary = self.boundary
        assert boundary is not None
        assert boundary.turn is not None
        return {
            "type": "agent.session.input.tool_result",
            "turn_id": boundary.turn.id,
            "call_id": call_id,
            "success": error is None,
            "output": output,
            "error": error,
        }

    async def answered(self, output: Any, *, error: str | None = None) -> str:
        """A call that gets a result, which is applied."""
        (call_id,) = await self.step(Call("look", {}))
        await self.accept(self.result(call_id, output, error=error))
        await self.claim()
        return call_id

    async def items(self, page: PageRequest = WHOLE) -> list[Item]:
        return (await self.store.read(list_items, self.id, PROJECT, page)).rows

    async def outputs(self) -> list[Any]:
        shown = [item.model_dump(mode="json") for item in await self.items()]
        return [item["output"] for item in shown if item["type"] == "function_call_output"]

    async def contents(self) -> list[Any]:
        shown = [item.model_dump(mode="json") for item in await self.items()]
        return [item["content"] for item in shown if item["type"] == "message" and item["role"] == "user"]


async def count(store: Store, session_id: str | None = None) -> int:
    query = select(func.count()).select_from(blobs)
    if session_id is not None:
        query = query.where(blobs.c.session_id == session_id)
    return await store.read(lambda conn: int(conn.execute(query).scalar_one()))


async def database_size(store: Store) -> int:
    def measure(conn: Connection) -> int:
        if conn.dialect.name == "sqlite":
            pages, size = (
                int(conn.execute(text(f"PRAGMA {name}")).scalar_one()) for name in ("page_count", "page_size")
            )
            return pages * size
        tables = (
            "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' AND relnamespace = "
        )
        return int(conn.execute(text(tables + "'public'::regnamespace")).scalar_one())

    return await store.read(measure)


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The digests of each query for large texts."""
    queries: list[list[str]] = []
    run = blob_rows._fetch

    def counted(conn: Connection, session_id: str, digests: list[str]) -> list[tuple[str, bytes]]:
        queries.append(digests)
        return run(conn, session_id, digests)

    monkeypatch.setattr(blob_rows, "_fetch", counted)
    return queries


async def test_one_image_in_ten_messages_and_results_is_stored_once(store: Store) -> None:
    url = image(1)
    # What empty tables and their indexes take comes before.
    await (await Session.create(store)).step(ends=True)
    before = await database_size(store)
    session = await Session.create(store, looked_at(url, "Message 0"))
    for number in range(1, 5):
        await session.say(looked_at(url, f"Message {number}"))
    for number in range(5):
        await session.answered(looked_at(url, f"Result {number}"))
    await session.step(ends=True)
    assert await count(store) == 1
    assert await database_size(store) - before < 1.3 * len(url)
    assert await session.contents() == [looked_at(url, f"Message {n}") for n in range(5)]
    assert await session.outputs() == [looked_at(url, f"Result {n}") for n in range(5)]


async def test_a_result_is_stored_once_although_it_is_the_calls_and_the_items(store: Store) -> None:
    await (await Session.create(store)).step(ends=True)
    said = base64.b64encode(random.Random(2).randbytes(MB)).decode()
    before = await database_size(store)
    session = await Session.create(store)
    call_id = await session.answered(said)
    assert await database_size(store) - before < 1.3 * len(said)
    assert session.boundary is not None
    assert session.boundary.turn is not None
    call = await store.read(read_call, session.id, session.boundary.turn.agent_id, call_id)
    assert call is not None
    assert call.result == {"success": True, "output": said, "error": None}
    assert await session.outputs() == [said]


async def test_forty_screenshots_are_listed_as_they_were_sent_with_one_query_a_page(
    store: Store, fetched: list[list[str]]
) -> None:
    session = await Session.create(store)
    sent = [looked_at(image(number, 50_000), f"Screen {number}") for number in range(40)]
    for parts in sent:
        await session.answered(parts)
    assert await count(store) == 40
    fetched.clear()
    assert await session.outputs() == sent
    assert [len(digests) for digests in fetched] == [40]
    fetched.clear()
    page = await session.items(PageRequest(limit=4, order="desc"))
    assert [item.type for item in page] == ["function_call_output", "function_call"] * 2
    assert [len(digests) for digests in fetched] == [2]
    fetched.clear()
    replayed = await store.read(read_events, session.id, PROJECT, 0, None, 1000)
    added = [e.event for e in replayed.events if e.event.type == "agent.session.turn.item.added"]
    shown = [event.item.model_dump(mode="json") for event in added]
    assert [item["output"] for item in shown if item["type"] == "function_call_output"] == sent
    assert [len(digests) for digests in fetched] == [40]


async def test_what_is_small_needs_no_query_and_no_row(store: Store, fetched: list[list[str]]) -> None:
    session = await Session.create(store, looked_at(image(1, 900)))
    await session.answered("x" * (LARGE_TEXT - 1))
    await session.say(looked_at("https://example.com/cat.png"))
    await session.items()
    await store.read(read_snapshot, session.id, PROJECT)
    await session.step(Text("message", {"role": "assistant", "content": [], "phase": None}), ends=True)
    assert fetched == []
    assert await count(store) == 0


async def test_every_reader_shows_what_was_sent(store: Store) -> None:
    first, second = looked_at(image(1), ODD), looked_at(image(2), "Steered.")
    session = await Session.create(store, first)
    assert session.boundary is not None
    assert session.boundary.turn is not None
    turn, agent_id = session.boundary.turn, session.boundary.turn.agent_id
    assert [item.data["content"] for item in session.boundary.items] == [first]
    snapshot = await store.read(read_snapshot, session.id, PROJECT)
    assert [item.data["content"] for item in snapshot.messages] == [first]
    (call_id,) = await session.step(Call("look", {"at": ODD}))
    await session.say(second)
    assert len(await stored_inbox(store)) < 1000
    await session.accept(session.result(call_id, ODD, error=ODD + "!"))
    await session.claim()
    assert await session.contents() == [first, second]
    context = await store.read(read_context, session.id, PROJECT)
    history = await store.read(load_history, session.id, agent_id)
    by_turn = await store.read(load_turn_items, turn.id)
    assert list(history.items) == list(context.history.items) == by_turn
    shown = [(item.type, {**item.data, "call_id": None}) for item in by_turn]
    assert shown == [
        ("message", {"role": "user", "content": first, "phase": None, "call_id": None}),
        ("function_call", {"call_id": None, "name": "look", "arguments": {"at": ODD}}),
        ("function_call_output", {"call_id": None, "output": ODD, "error": ODD + "!"}),
        ("message", {"role": "user", "content": second, "phase": None, "call_id": None}),
    ]


async def stored_inbox(store: Store) -> str:
    """What is in the inbox, as it stands there."""
    return await store.read(lambda conn: str(conn.execute(select(inbox.c.payload)).scalars().all()))


async def test_the_same_result_is_accepted_again_and_another_one_is_a_conflict(store: Store) -> None:
    session = await Session.create(store)
    url = image(1)
    (call_id,) = await session.step(Call("look", {}))
    same = session.result(call_id, looked_at(url, ODD))
    others = [
        looked_at(url, ODD + "!"),
        looked_at(image(2), ODD),
        [*looked_at(url, ODD), *looked_at(url)],
        None,
    ]

    async def told(repeat: Callable[[], Awaitable[None]]) -> None:
        await session.accept(same)
        for other in others:
            with pytest.raises(Conflict, match="different result"):
                await session.accept(session.result(call_id, other))
        await repeat()

    await session.accept(same)
    await told(session.claim)
    await told(lambda: session.accept(same))
    assert await session.outputs() == [looked_at(url, ODD)]
    assert await count(store) == 2, "what was refused is not stored"


async def test_a_deleted_session_takes_its_texts_along_and_no_others(store: Store) -> None:
    url = image(1)
    gone, kept = [await Session.create(store, looked_at(url)) for _ in range(2)]
    await gone.answered(looked_at(url, ODD))
    await gone.step(ends=True)
    assert (await count(store, gone.id), await count(store, kept.id)) == (2, 1)
    assert await store.write(delete_session, gone.id, PROJECT)
    while await store.write(purge_deleted, 3):
        pass
    assert (await count(store, gone.id), await count(store, kept.id)) == (0, 1)
    assert await kept.contents() == [looked_at(url)]


async def test_a_copy_brings_them_to_another_kind_of_database(
    database_url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    store = await open_store(database_url)
    session = await Session.create(store, looked_at(image(1), ODD))
    for number in range(20):
        await session.answered(looked_at(image(number), ODD))
    shown = await session.items()
    copy = tmp_path / "copy.db"
    back_up(database_url, copy)
    await store.close()
    if is_sqlite(database_url):
        other = str(request.getfixturevalue("postgres_url"))
    else:
        other = f"sqlite:///{tmp_path}/other/perdure.db"
    restore(other, copy)
    with open_read_only(other) as conn:
        assert list_items(conn, session.id, PROJECT, WHOLE).rows == shown
    store = await open_store(other)
    moved = Session(store, session.id)
    assert await moved.items() == shown
    assert await count(store) == 21
    await moved.claim()
    await store.close()


async def test_rows_that_hold_their_texts_themselves_are_read_as_before(store: Store) -> None:
    session = await Session.create(store)
    url = image(1)
    (call_id,) = await session.step(Call("look", {}))
    await session.accept(session.result(call_id, looked_at(url)))
    await session.say(looked_at(url, "Old."))

    def write_as_before(conn: Connection) -> None:
        result = {"success": True, "output": looked_at(url), "error": None}
        conn.execute(calls.update().values(result=result).where(calls.c.call_id == call_id))
        message = {"type": "message", "role": "user", "content": looked_at(url, "Old.")}
        conn.execute(inbox.update().values(payload=message).where(inbox.c.kind == "message"))
        conn.execute(blobs.delete())

    await store.write(lambda tx: write_as_before(tx.conn))
    await session.accept(session.result(call_id, looked_at(url)))
    with pytest.raises(Conflict):
        await session.accept(session.result(call_id, looked_at(url, "Other.")))
    await session.claim()
    output = {"output": looked_at(url, "Even older."), "error": None, "call_id": call_id}

    def item_as_before(conn: Connection) -> None:
        of_call = (items.c.session_id == session.id, items.c.type == "function_call_output")
        conn.execute(items.update().values(data=output).where(*of_call))

    await store.write(lambda tx: item_as_before(tx.conn))
    assert await session.outputs() == [looked_at(url, "Even older.")]
    assert (await session.contents())[1:] == [looked_at(url, "Old.")]


async def test_nothing_that_is_sent_is_taken_for_a_reference(store: Store) -> None:
    session = await Session.create(store, looked_at(image(1)))

    def one_digest(conn: Connection) -> str:
        return str(conn.execute(select(blobs.c.digest)).scalar_one())

    digest = await store.read(one_digest)
    forged: Any = [{"content": [None, None]}, [[["content", 1, "image_url"], digest]]]
    forgeries = (forged, {"data": forged, "result": forged, "blobs": forged[1]}, forged * 2)
    for forgery in forgeries:
        (call_id,) = await session.step(Call("look", forgery))
        await session.accept(session.result(call_id, dumps(forgery).decode()))
        await session.claim()
    shown = [item.model_dump(mode="json") for item in await session.items()]
    assert [item["arguments"] for item in shown if item["type"] == "function_call"] == list(forgeries)


async def test_a_document_that_is_an_array_is_told_from_one_with_references(store: Store) -> None:
    documents: list[Any] = [
        [],
        [{"a": None}, [[["a"], "0" * 64]]],
        [["x" * LARGE_TEXT], []],
        ["x" * LARGE_TEXT, {"a": ["y" * LARGE_TEXT, "x" * LARGE_TEXT]}],
        {"a": {"b": [[["x" * LARGE_TEXT]]]}},
        {},
        None,
        "x" * LARGE_TEXT,
    ]
    session = await Session.create(store)

    def put(tx: Any) -> list[Any]:
        return [Blobs(tx.conn, session.id).put(document) for document in documents]

    stored = await store.write(put)

    def get(conn: Connection) -> list[Any]:
        rows = [{"session_id": session.id, "n": n, "document": each} for n, each in enumerate(stored)]
        return [row["document"] for row in whole(conn, rows, "document")]

    assert await store.read(get) == documents
    assert await count(store) == 2


async def test_texts_that_no_text_column_holds_are_kept(store: Store) -> None:
    odd = "nul \u0000 and lone surrogates \ud800 \udfff, 𝄞 " * 1000
    session = await Session.create(store)
    stored = await store.write(lambda tx: Blobs(tx.conn, session.id).put({"text": odd}))
    row = {"session_id": session.id, "document": stored}
    found = await store.read(lambda conn: whole(conn, [row], "document"))
    assert found[0]["document"] == {"text": odd}


async def test_a_text_that_a_model_is_writing_leaves_no_earlier_versions(store: Store) -> None:
    session = await Session.create(store)
    boundary = session.boundary
    assert boundary is not None
    assert boundary.turn is not None
    opened = await store.write(open_item, boundary.lease, boundary.turn.id, "message", 0)
    for size in (10_000, 20_000, 30_000):
        data = {**opened.item.data, "content": [{"type": "output_text", "text": "x" * size}]}
        await store.write(checkpoint_item, boundary.lease, opened.item, data)
    await session.step(Text("message", data, opened=opened.item), ends=True)
    assert await count(store) == 0
    assert (await session.items())[-1].content[0].text == "x" * 30_000


async def test_equal_texts_are_one_object_in_a_conversation(store: Store) -> None:
    session = await Session.create(store, looked_at(image(1)))
    await session.answered(looked_at(image(1)))
    assert session.boundary is not None
    assert session.boundary.turn is not None
    history = await store.read(load_history, session.id, session.boundary.turn.agent_id)
    conversation = Conversation(history.items)
    await session.answered(looked_at(image(1)))
    conversation.update(session.boundary.items)
    parts = [row.data.get("content") or row.data.get("output") for row in conversation.rows]
    urls = [part[1]["image_url"] for part in parts if part]
    assert len(urls) == 3
    assert len({id(url) for url in urls}) == 1
    assert urls[0] == image(1)
    assert conversation.size < 1.1 * len(urls[0])
