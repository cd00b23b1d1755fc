"""What agents did with one another: who created whom, who was told of what, and what is out of place."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.inspect import Chain, Thread, TurnLink, build_chain
from perdure.inspect.links import Coordination

from .crews import coordination, created, crew, message, said, thread, usage, work
from .histories import answer, session, subagent, turn, user


def between(chain: Chain, kind: str) -> list[Coordination]:
    return [
        entry
        for each in chain.threads
        for turn in each.turns
        for entry in turn.entries
        if isinstance(entry, Coordination) and entry.place.type.startswith(kind)
    ]


def turns_of(chain: Chain, subagent_id: str) -> list[TurnLink]:
    return [turn for each in chain.threads if each.subagent_id == subagent_id for turn in each.turns]


def kinds(chain: Chain) -> list[str]:
    return [finding.kind for finding in chain.findings]


ONE = thread(1, (work(1),), (said("Four lamps.", "turn_1_10"),))
TWO = thread(2, (work(2),), (said("Five lamps.", "turn_2_10"),))
TWINS = tuple(
    Thread((), (), subagent(id=name, instructions=[{"type": "output_text", "text": "The same."}]))
    for name in ("sub_1", "sub_2")
)
SAME = [{"type": "output_text", "text": "The same."}]


def added(item_id: str) -> dict[str, Any]:
    item = created(id=item_id, status="in_progress", content=SAME)
    return {"type": "agent.session.turn.item.added", "turn_id": "turn_1", "item": item}


def told(subagent_id: str, parent: str = "agt_main") -> dict[str, Any]:
    named = subagent(id=subagent_id, parent_agent_id=parent)
    return {"type": "agent.session.subagent.created", "subagent": named}


def test_stored_events_say_which_creation_made_which_subagent() -> None:
    made = (created(id="cs_1", content=SAME), created(id="cs_2", content=SAME))
    # In the other order than that of the list, so that nothing else can tell it.
    events = (added("cs_2"), told("sub_1"), added("cs_1"), told("sub_2"))
    chain = build_chain(crew(*made, answer(), subagents=TWINS, events=events))
    links = {each.place.id: (each.subagent_id, each.linked_by) for each in between(chain, "create")}
    assert links == {"cs_1": ("sub_2", "event"), "cs_2": ("sub_1", "event")}
    without = build_chain(crew(*made, answer(), subagents=TWINS))
    assert [each.linked_by for each in between(without, "create")] == ["instructions", "instructions"]


@pytest.mark.parametrize(
    "events",
    [
        (added("cs_1"), {"type": "agent.session.turn.item.done"}, told("sub_2")),
        (added("cs_1"), told("sub_2", parent="sub_1")),
    ],
    ids=["not directly behind it", "of another parent"],
)
def test_only_an_event_directly_behind_a_creation_links_it(events: tuple[dict[str, Any], ...]) -> None:
    made = crew(created(content=SAME), answer(), subagents=TWINS, events=events)
    assert [each.linked_by for each in between(build_chain(made), "create")] == ["instructions"]


def test_a_creation_that_failed_made_nobody() -> None:
    refused = created(id="cs_1", content=SAME, status="failed")
    chain = build_chain(crew(refused, created(id="cs_2", content=SAME), answer(), subagents=TWINS[:1]))
    assert [(each.place.id, each.subagent_id) for each in between(chain, "create")] == [
        ("cs_1", None),
        ("cs_2", "sub_1"),
    ]
    assert chain.findings == ()


def test_nested_subagents_stand_below_the_agents_that_created_them() -> None:
    parts = (
        thread(1, (), ()),
        thread(2, (), ()),
        thread(3, (), (), parent_agent_id="sub_1"),
        thread(4, (), (), parent_agent_id="sub_3"),
        thread(5, (), (), parent_agent_id="sub_gone"),
    )
    chain = build_chain(crew(created(1), created(2), answer(), subagents=parts))
    assert [(each.subagent_id, each.depth) for each in chain.threads] == [
        (None, 0),
        ("sub_1", 1),
        ("sub_3", 2),
        ("sub_4", 3),
        ("sub_2", 1),
        ("sub_5", 1),
    ]
    assert chain.threads[1].task == "Do part 1."


def test_subagents_that_claim_to_have_created_one_another_are_all_there() -> None:
    parts = (thread(1, (), (), parent_agent_id="sub_2"), thread(2, (), (), parent_agent_id="sub_1"))
    chain = build_chain(crew(answer(), subagents=parts))
    assert sorted(each.subagent_id or "" for each in chain.threads) == ["", "sub_1", "sub_2"]


def test_reports_are_of_the_turns_with_the_same_text() -> None:
    reports = (message("sub_2", "Five lamps."), message("sub_1", "Four lamps."))
    chain = build_chain(crew(created(1), created(2), *reports, answer(), subagents=(ONE, TWO)))
    assert [each.about_turn_id for each in between(chain, "agent_message")] == ["turn_2_10", "turn_1_10"]
    (first,) = turns_of(chain, "sub_1")
    assert (first.report, first.told_by) == ("told", "am_sub_1")
    assert chain.findings == ()


@pytest.mark.parametrize(
    ("status", "text", "report"),
    [
        ("failed", "Half of it", "The subagent's turn failed with server_error: gone\nHalf of it"),
        ("cancelled", "Half of it", "It was interrupted. Last words: Half of it"),
        ("completed", "", "(The subagent ended its turn without any text.)"),
    ],
)
def test_a_report_of_a_turn_without_an_answer_is_linked_too(status: str, text: str, report: str) -> None:
    items = (said(text, "turn_1_10", status="incomplete"),) if text else ()
    part = thread(1, (work(1, status=status),), items)
    chain = build_chain(crew(created(1), message("sub_1", report), answer(), subagents=(part,)))
    assert [each.about_turn_id for each in between(chain, "agent_message")] == ["turn_1_10"]
    assert "report_missing" not in kinds(chain)


@pytest.mark.parametrize("kind", ["interrupt", "close"])
def test_the_call_that_ended_a_turn_has_told_of_it(kind: str) -> None:
    part = thread(1, (work(1, status="cancelled"),), (said("Half of it", "turn_1_10", status="incomplete"),))
    later = turn(2, started_at=1_760_000_100, completed_at=1_760_000_101)
    first = turn(1, completed_at=1_760_000_061)
    chain = build_chain(
        crew(
            created(1),
            coordination(kind, "sub_1"),
            answer(),
            answer(id="msg_later", turn_id="turn_2"),
            subagents=(part,),
            turns=(first, later),
        )
    )
    (ended,) = turns_of(chain, "sub_1")
    assert (ended.report, ended.told_by) == ("told_by_call", f"co_{kind}")
    assert [each.about_turn_id for each in between(chain, kind)] == ["turn_1_10"]
    assert chain.findings == ()


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
def test_a_report_that_never_came_is_told_once_there_was_a_later_turn(status: str) -> None:
    part = thread(1, (work(1, status=status),), (said("Four lamps.", "turn_1_10"),))
    first = turn(1, completed_at=1_760_000_061)
    alone = crew(created(1), answer(), subagents=(part,), turns=(first,))
    assert [each.report for each in turns_of(build_chain(alone), "sub_1")] == ["waiting"]
    later = turn(2, started_at=1_760_000_100, completed_at=1_760_000_101)
    begun = crew(
        created(1),
        answer(),
        user("Go on.", id="msg_3", turn_id="turn_2"),
        subagents=(part,),
        turns=(first, later),
    )
    assert "report_missing" not in kinds(build_chain(begun))  # its model has not been asked yet
    worked = crew(
        created(1),
        answer(),
        answer(id="msg_4", turn_id="turn_2"),
        subagents=(part,),
        turns=(first, later),
    )
    chain = build_chain(worked)
    (found,) = [each for each in chain.findings if each.kind == "report_missing"]
    assert (found.severity, found.turn_id) == ("problem", "turn_1_10")
    assert "agent-1 (sub_1)" in found.text
    assert [each.report for each in turns_of(chain, "sub_1")] == ["missing"]


def test_a_report_that_comes_twice_is_told() -> None:
    twice = (message("sub_1", "Four lamps."), message("sub_1", "Four lamps.", id="am_again"))
    chain = build_chain(crew(created(1), *twice, answer(), subagents=(ONE,)))
    (found,) = chain.findings
    assert (found.kind, found.item_ids) == ("reported_twice", ("am_again",))


def test_the_same_answer_in_two_turns_is_reported_twice_rightly() -> None:
    part = thread(
        1,
        (work(1), work(1, at=20)),
        (said("Four lamps.", "turn_1_10"), said("Four lamps.", "turn_1_20")),
    )
    reports = (
        message("sub_1", "Four lamps."),
        coordination("send", "sub_1"),
        message("sub_1", "Four lamps.", id="am_again"),
    )
    chain = build_chain(crew(created(1), *reports, answer(), subagents=(part,)))
    assert [each.about_turn_id for each in between(chain, "agent_message")] == ["turn_1_10", "turn_1_20"]
    assert chain.findings == ()


WAIT = coordination("wait", "sub_1", "agent-2")
FOUR, FIVE = message("sub_1", "Four lamps."), message("sub_2", "Five lamps.")


@pytest.mark.parametrize(
    ("items", "outcome", "unreported"),
    [
        ((WAIT, FOUR, FIVE), "all_ended", ()),
        ((FOUR, WAIT, FIVE), "all_ended", ()),
        ((FOUR, FIVE, WAIT), "all_ended", ()),
        ((WAIT, FIVE), "some_ended", ("sub_1",)),
        ((WAIT, answer(id="msg_5"), FOUR, FIVE), "none_ended", ("sub_1", "sub_2")),
        ((FIVE, coordination("send", "sub_2"), WAIT, FOUR), "some_ended", ("sub_2",)),
        ((coordination("interrupt", "sub_1"), WAIT, FIVE), "all_ended", ()),
        (({**WAIT, "status": "in_progress"},), "waiting", ("sub_1", "sub_2")),
        (({**WAIT, "status": "incomplete"},), "broken_off", ("sub_1", "sub_2")),
        (({**WAIT, "status": "failed"},), "refused", ("sub_1", "sub_2")),
    ],
)
def test_a_wait_says_what_came_of_it(
    items: tuple[dict[str, Any], ...], outcome: str, unreported: tuple[str, ...]
) -> None:
    chain = build_chain(crew(created(1), created(2), *items, answer(), subagents=(ONE, TWO)))
    (wait,) = between(chain, "wait")
    assert (wait.outcome, wait.unreported) == (outcome, unreported)


def test_two_waits_share_no_report() -> None:
    second = {**WAIT, "id": "co_wait_2"}
    chain = build_chain(
        crew(created(1), created(2), WAIT, FOUR, second, FIVE, answer(), subagents=(ONE, TWO))
    )
    assert [(each.outcome, each.reported) for each in between(chain, "wait")] == [
        ("some_ended", ("sub_1",)),
        ("all_ended", ("sub_2",)),
    ]


def test_a_subagent_at_work_in_an_idle_session_is_no_fault() -> None:
    part = thread(1, (work(1, status="in_progress"),), ())
    chain = build_chain(crew(created(1), answer(), subagents=(part,)))
    (found,) = chain.findings
    assert (found.kind, found.severity) == ("subagent_running", "note")
    assert chain.threads[1].is_running
    busy = session(status="in_progress")
    assert build_chain(crew(created(1), subagents=(part,), session=busy)).findings == ()


def test_what_each_agent_used_is_known_or_unknown_and_never_nothing() -> None:
    chain = build_chain(crew(created(1), created(2), FOUR, FIVE, answer(), subagents=(ONE, TWO)))
    assert [each.usage and each.usage.total for each in chain.threads] == [7, 100, 200]
    assert chain.usage is not None
    assert chain.usage.total == usage(1007)["total_tokens"]
    unknown = thread(1, (work(1), work(1, at=20, usage=None)), ONE.items)
    chain = build_chain(crew(created(1), FOUR, answer(), subagents=(unknown,)))
    assert chain.threads[1].usage is None


def test_a_nested_subagent_reports_to_its_own_creator() -> None:
    above = thread(
        1,
        (work(1, completed_at=1_760_000_050),),
        (
            created(2, agent_id="sub_1", turn_id="turn_1_10"),
            message("sub_2", "Five lamps.", "sub_1", turn_id="turn_1_10"),
            said("Four lamps.", "turn_1_10"),
        ),
    )
    below = thread(2, (work(2),), TWO.items, parent_agent_id="sub_1")
    chain = build_chain(crew(created(1), FOUR, answer(), subagents=(above, below)))
    assert chain.findings == ()
    assert [each.report for each in turns_of(chain, "sub_2")] == ["told"]
    assert [(each.sender, each.subagent_id) for each in between(chain, "create")] == [
        ("agt_main", "sub_1"),
        ("sub_1", "sub_2"),
    ]
