from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perdure.inspect import Export, Unreadable, build_chain, export_of, read_export, read_file, read_json
from perdure.inspect.exports import Resource
from perdure.inspect.jsontext import MAX_DEPTH

from .histories import action, call, export, sent, session, turn, user, with_subagent


def test_an_export_is_read_as_it_was_written(tmp_path: Path) -> None:
    whole = replace(
        with_subagent(), inputs=(sent(),), events=({"type": "agent.session.idle"},), ledger={"a": 1},
        journal=({"call_id": "call_3c91"},), settled=False, exported_at=7,
    )  # fmt: skip
    file = tmp_path / "a.json"
    file.write_text(json.dumps(whole.document()))
    again = read_file(str(file))
    assert again == whole
    assert again.exported_at == 7


def test_pages_arrays_and_sessions_of_others_are_understood() -> None:
    items = [user(), call(), sent()]
    for document in (items, {"object": "list", "data": items, "has_more": False}):
        found = export_of(document, "x")
        assert found.items == (user(), call())
        assert found.inputs == (sent(),)
        assert found.session is None
    assert export_of(session(), "x") == Export(session())
    assert export_of({"session": session(), "items": items}, "x").session_id == "sess_8f21"


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"object": "perdure.export", "version": 2}, "version 2"),
        ({"object": "perdure.export", "version": 1, "session": 5}, "session is not an object"),
        ({"object": "perdure.export", "version": 1, "items": 5}, "items is not an array"),
        ({"object": "perdure.export", "version": 1, "turns": [{}, 5]}, "turns[1] is not an object"),
        ({"object": "perdure.export", "version": 1, "subagents": [{}]}, "subagents[0].subagent"),
        ({"order_id": "A-1042"}, "neither an export"),
        ([], "neither an export"),
        (5, "neither an export"),
    ],
)
def test_what_is_no_export_is_told_with_its_place(document: Any, words: str) -> None:
    with pytest.raises(Unreadable) as caught:
        export_of(document, "some.json")
    assert str(caught.value).startswith("some.json")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"{", "line 1, column 2"),
        (b'{"a":\n  x}', "line 2, column 3"),
        (b"\xff\xfe", "not UTF-8"),
        (b"", "line 1, column 1"),
        (b"[NaN]", "NaN"),
        (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), "levels deep"),
        (b"[" * 100_000, "too deeply"),
    ],
)
def test_a_file_that_is_no_json_is_told_with_the_place(tmp_path: Path, data: bytes, words: str) -> None:
    file = tmp_path / "x.json"
    file.write_bytes(data)
    with pytest.raises(Unreadable) as caught:
        read_json(str(file))
    assert words in str(caught.value)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="No such file"):
        read_file(str(tmp_path / "none.json"))
    with pytest.raises(Unreadable, match="directory"):
        read_file(str(tmp_path))


class Restless:
    """Holds a session whose state is another one at each of the first looks."""

    is_snapshot = False

    def __init__(self, states: list[Resource]) -> None:
        self._states = states
        self.looks = 0

    def session(self, session_id: str) -> Resource:
        self.looks += 1
        return self._states[min(self.looks, len(self._states)) - 1]

    def turns(self, session_id: str, subagent_id: str | None) -> Sequence[Resource]:
        return (turn(status="waiting"),)

    def items(self, session_id: str, subagent_id: str | None) -> Sequence[Resource]:
        return (user(), call())

    def subagents(self, session_id: str) -> Sequence[Resource]:
        return ()

    def events(self, session_id: str) -> Sequence[Resource]:
        return ()


def test_a_session_that_changes_while_it_is_read_is_read_again() -> None:
    before, after = (
        session(status="in_progress"),
        session(status="requires_action", required_actions=[action()]),
    )
    reader = Restless([before, after])
    found = read_export(reader, "sess_8f21")
    assert found.session == after
    assert found.settled
    assert [each.state for each in build_chain(found).calls()] == ["owed"]


def test_a_session_that_never_rests_is_marked() -> None:
    found = read_export(Restless([session(last_active_at=number) for number in range(9)]), "sess_8f21")
    assert not found.settled
    assert "not_settled" in [each.kind for each in build_chain(found).findings]


def test_an_export_leaves_nothing_out() -> None:
    assert set(export(ledger={}, inputs=(sent(),)).document()) == {
        "object", "version", "exported_at", "settled", "session", "turns", "items", "subagents", "inputs",
        "ledger",
    }  # fmt: skip
