"""What summaries use is counted like every other call: in the turn, the session, and the list of calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from .conftest import Desk, Desks
from .test_while_compacting import ASYNC, LONG, fill, message, until

pytestmark = pytest.mark.slow


def ask(desk: Desk, path: str) -> Any:
    address = str(desk.client.base_url).removesuffix("/v1/")
    headers = {"Authorization": f"Bearer {desk.client.api_key}"}
    answer = httpx2.get(f"{address}/perdure/v1/sessions/{path}", headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


def settled(desk: Desk, session_id: str, accept: Callable[[list[Any]], bool]) -> None:
    """Wait until the calls beside the turns have ended, too."""
    until(
        desk, session_id, lambda _: accept(ask(desk, f"{session_id}/usage/calls?limit=100&order=asc")["data"])
    )


@pytest.mark.parametrize("options", [{}, ASYNC], ids=["while the turn waits", "beside the turns"])
def test_summaries_are_listed_and_their_tokens_are_in_the_sums(desks: Desks, options: Any) -> None:
    desk = desks()
    session_id = fill(desk, 7, **options)
    desk.say(session_id, "Is that all?")
    summaries = len(desk.office.summaries)
    settled(desk, session_id, lambda calls: sum(c["purpose"] == "compaction" for c in calls) == summaries)
    calls = ask(desk, f"{session_id}/usage/calls?limit=100&order=asc")["data"]
    purposes = {call["purpose"] for call in calls}
    assert purposes == {"step", "compaction"}
    assert [call["outcome"] for call in calls] == ["ok"] * len(calls)
    usage = ask(desk, f"{session_id}/usage")
    assert usage["model_calls"] == len(calls)
    total = desk.sessions.retrieve(session_id).usage
    assert total is not None
    assert usage["usage"]["total_tokens"] == total.total_tokens
    assert sum(call["usage"]["total_tokens"] for call in calls) == total.total_tokens


def test_a_ceiling_refuses_the_summary_and_the_session_goes_on_when_it_is_raised(desks: Desks) -> None:
    desk = desks()
    session_id = fill(desk, 5)
    key = "perdure.limit.model_calls_per_session"
    desk.sessions.update(session_id, metadata={key: "5"})
    desk.sessions.events.create(session_id, events=[message(LONG)])
    until(desk, session_id, lambda session: session.status == "idle")
    newest = desk.sessions.turns.list(session_id, limit=1).data[0]
    assert newest.error is not None
    assert newest.error.code == "usage_limit_exceeded"
    assert ask(desk, f"{session_id}/usage")["model_calls"] == 5
    desk.sessions.update(session_id, metadata={key: "50"})
    assert desk.say(session_id, "And now?").turn.status == "completed"
