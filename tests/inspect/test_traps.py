"""What is easily taken for something else, and is shown for what it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perdure.inspect import KINDS, Chain, Export, Finding, build_chain, find_retries
from perdure.inspect.links import Coordination, Orphan

from .histories import (
    LOOKUP,
    action,
    answer,
    call,
    creation,
    export,
    result,
    sent,
    session,
    subagent,
    turn,
    user,
    with_subagent,
)


def kinds(chain: Chain) -> list[str]:
    return [finding.kind for finding in chain.findings]


def only(chain: Chain, kind: str) -> Finding:
    assert kinds(chain) == [kind], chain.findings
    return chain.findings[0]


def test_a_session_in_order_has_no_findings() -> None:
    chain = build_chain(export())
    assert chain.findings == ()
    (made,) = chain.calls()
    assert (made.state, made.call_id, made.turn_id) == ("answered", "call_3c91", "turn_1")
    assert [each.place.id for each in made.results if each.place] == ["fco_1"]
    assert [(thread.agent_id, thread.subagent_id) for thread in chain.threads] == [("agt_main", None)]


def test_only_required_actions_say_what_is_owed() -> None:
    asked = session(status="requires_action", required_actions=[action()])
    waiting = export(user(), call(status="in_progress"), session=asked, turns=(turn(status="waiting"),))
    chain = build_chain(waiting)
    assert [(owed.type, owed.key, owed.turn_id) for owed in chain.owed] == [
        ("function_call", "call_3c91", "turn_1")
    ]
    assert [each.state for each in chain.calls()] == ["owed"]
    assert chain.findings == ()


def test_a_call_in_the_history_is_no_debt() -> None:
    chain = build_chain(export(user(), call(), answer()))
    found = only(chain, "call_not_owed")
    assert found.severity == "note"
    assert "nothing is owed" in found.text
    assert [each.state for each in chain.calls()] == ["unanswered"]
    assert chain.owed == ()


def test_without_a_session_nothing_says_what_is_owed() -> None:
    chain = build_chain(Export(None, items=(user(), call())))
    assert "required_actions" in only(chain, "debt_unknown").text
    assert [each.state for each in chain.calls()] == ["unknown"]


@pytest.mark.parametrize("drifted", ["call_3c9l", "call_3C91", "call_3c91 ", "3c91"])
def test_a_result_with_a_drifted_call_id_is_shown_beside_the_call_it_was_meant_for(drifted: str) -> None:
    asked = session(status="requires_action", required_actions=[action()])
    wrong = sent(call_id=drifted)
    chain = build_chain(
        export(
            user(),
            call(status="in_progress"),
            session=asked,
            turns=(turn(status="waiting"),),
            inputs=(wrong,),
        )
    )
    found = only(chain, "result_id_drifted")
    assert drifted in found.text
    assert "call_3c91" in found.text
    assert [each.state for each in chain.calls()] == ["owed"]
    (orphan,) = [entry for entry in chain.threads[0].turns[0].entries if isinstance(entry, Orphan)]
    assert orphan.meant == "call_3c91"


def test_a_drifted_result_in_the_items_leaves_its_call_mismatched() -> None:
    chain = build_chain(export(user(), call(), result(call_id="call_3c19"), answer()))
    assert only(chain, "result_id_drifted").item_ids == ("fco_1",)
    assert [each.state for each in chain.calls()] == ["mismatched"]


def test_a_result_with_another_turn_is_a_drift_of_the_turn() -> None:
    turns = (turn(1), turn(2))
    chain = build_chain(
        export(user(), call(), result(turn_id="turn_2"), answer(turn_id="turn_2"), turns=turns)
    )
    found = only(chain, "result_turn_drifted")
    assert "turn_1" in found.text
    assert "turn_2" in found.text


def test_the_late_result_of_an_asynchronous_function_may_be_of_a_later_turn() -> None:
    agent = {**session()["agent"], "tools": [{**LOOKUP, "async": True}]}
    late = export(
        user(),
        call(),
        answer("I have asked."),
        result(turn_id="turn_2"),
        session=session(agent=agent),
        turns=(turn(1), turn(2)),
    )
    chain = build_chain(late)
    assert chain.findings == ()
    assert [each.state for each in chain.calls()] == ["answered"]


def test_an_item_id_is_no_call_id() -> None:
    chain = build_chain(export(user(), call(), result(call_id="fc_1"), answer()))
    assert "the call_id of this call is call_3c91" in only(chain, "item_id_as_call_id").text


def test_a_result_without_a_call_is_an_orphan() -> None:
    chain = build_chain(export(user(), result(call_id="fn_zzzz"), answer()))
    assert only(chain, "result_without_call").item_ids == ("fco_1",)
    assert list(chain.calls()) == []


@pytest.mark.parametrize(
    ("second", "word"), [({"id": "fco_2"}, "all alike"), ({"id": "fco_2", "output": "{}"}, "different")]
)
def test_a_call_that_was_answered_twice_is_told(second: dict[str, Any], word: str) -> None:
    chain = build_chain(export(user(), call(), result(), result(**second), answer()))
    assert word in only(chain, "answered_twice").text


def test_a_result_that_was_sent_and_became_an_item_is_one_result() -> None:
    same = sent(output=result()["output"])
    assert build_chain(export(inputs=(same, same))).findings == ()


def test_an_object_is_no_output() -> None:
    chain = build_chain(export(user(), call(), result(output={"order_id": "A-1042"}), answer()))
    assert "an object" in only(chain, "output_not_text").text
    parts = [{"type": "input_text", "text": "paid"}]
    assert build_chain(export(user(), call(), result(output=parts), answer())).findings == ()
    odd = result(output=[{"order_id": "A-1042"}])
    assert kinds(build_chain(export(user(), call(), odd, answer()))) == ["output_not_text"]


def test_an_object_that_was_sent_as_output_is_told_while_the_call_is_owed() -> None:
    asked = session(status="requires_action", required_actions=[action()])
    waiting = export(
        user(),
        call(status="in_progress"),
        session=asked,
        turns=(turn(status="waiting"),),
        inputs=(sent(output={"order_id": "A-1042"}),),
    )
    assert kinds(build_chain(waiting)) == ["output_not_text", "sent_but_owed"]


def test_idle_after_a_failed_turn_is_no_success() -> None:
    error = {"code": "server_error", "message": "The provider gave up."}
    chain = build_chain(export(user("Hello."), turns=(turn(status="failed", error=error),)))
    found = only(chain, "idle_after_failure")
    assert found.severity == "problem"
    assert "The provider gave up." in found.text
    later = export(
        user("Hello."), answer(turn_id="turn_2"), turns=(turn(1, status="failed", error=error), turn(2))
    )
    assert only(build_chain(later), "turn_failed").severity == "note"


def test_calls_that_a_cancel_dropped_are_told_and_not_owed() -> None:
    dropped = export(user(), call(status="incomplete"), turns=(turn(status="cancelled"),))
    chain = build_chain(dropped)
    assert kinds(chain) == ["call_dropped", "idle_after_cancel"]
    assert [each.state for each in chain.calls()] == ["dropped"]


def test_a_completed_turn_does_not_say_that_its_tools_succeeded() -> None:
    failed = result(status="failed", output=None, error="No such order.")
    chain = build_chain(export(user(), call(status="failed"), failed, answer()))
    assert "No such order." in only(chain, "tool_failed").text
    assert [each.state for each in chain.calls()] == ["failed"]


def test_a_failed_session_is_told() -> None:
    chain = build_chain(export(session=session(status="failed", error="environment gone")))
    assert "environment gone" in only(chain, "session_failed").text


def test_a_function_call_of_a_subagent_is_never_right() -> None:
    of_subagent = (call(id="fc_9", turn_id="turn_9"), result(id="fco_9", turn_id="turn_9"))
    chain = build_chain(with_subagent(of_subagent=of_subagent))
    assert only(chain, "function_call_by_subagent").item_ids == ("fc_9",)


def test_a_call_of_a_subagents_turn_among_the_main_agents_items_is_told() -> None:
    mixed = with_subagent(user(), creation(), call(turn_id="turn_9"), result(turn_id="turn_9"), answer())
    found = kinds(build_chain(mixed))
    assert found.count("wrong_thread") == 2
    assert "function_call_by_subagent" in found


def test_root_and_subagent_are_apart_and_linked() -> None:
    own = (user("Compare the invoice.", id="msg_8", turn_id="turn_9"), answer(id="msg_9", turn_id="turn_9"))
    chain = build_chain(with_subagent(of_subagent=own))
    assert chain.findings == ()
    assert [(thread.subagent_id, thread.parent_agent_id) for thread in chain.threads] == [
        (None, None),
        ("sub_7a12", "agt_main"),
    ]
    (made,) = [entry for entry in chain.threads[0].turns[0].entries if isinstance(entry, Coordination)]
    assert (made.subagent_id, made.linked_by) == ("sub_7a12", "instructions")


def test_a_subagent_with_other_instructions_is_linked_by_its_order() -> None:
    chain = build_chain(with_subagent(instructions=None))
    (made,) = [entry for entry in chain.threads[0].turns[0].entries if isinstance(entry, Coordination)]
    assert (made.subagent_id, made.linked_by) == ("sub_7a12", "order")


def test_a_completed_creation_without_subagent_is_told_and_so_is_the_reverse() -> None:
    assert kinds(build_chain(export(user("Hello."), creation(), answer()))) == ["subagent_not_linked"]
    assert kinds(build_chain(with_subagent(user("Hello."), answer()))) == ["subagent_not_linked"]


def test_a_message_to_an_agent_that_is_not_there_is_told() -> None:
    message = {
        "id": "am_1",
        "turn_id": "turn_1",
        "type": "agent_message",
        "sender_agent_id": "sub_7a12",
        "recipient_agent_id": "agt_other",
        "content": [{"type": "output_text", "text": "Lines match."}],
    }
    chain = build_chain(with_subagent(user("Hello."), creation(), message, answer()))
    assert "agt_other" in only(chain, "unknown_recipient").text


def test_a_subagent_that_failed_is_told_although_its_creation_completed() -> None:
    both = with_subagent()
    failed = replace(both.subagents[0], turns=(turn(9, subagent_id="sub_7a12", status="failed"),))
    assert kinds(build_chain(replace(both, subagents=(failed,)))) == ["subagent_failed"]


def test_there_is_no_item_called_handoff() -> None:
    handoff = {"id": "ho_1", "turn_id": "turn_1", "type": "handoff", "to": "billing"}
    assert (
        "create_subagent_call"
        in only(build_chain(export(user("Hello."), handoff, answer())), "unknown_item_type").text
    )


def test_an_id_that_only_the_chat_holds_is_told() -> None:
    chain = build_chain(export(user("A-1042, then B-2077."), call(), result(), answer()))
    found = only(chain, "id_only_in_chat")
    assert found.severity == "problem"
    assert found.text.startswith("B-2077 stands only in chat text (msg_1)")


@pytest.mark.parametrize(
    "kept",
    [
        {"ledger": {"session_id": "sess_8f21", "order_id": "B-2077"}},
        {"journal": ({"turn_id": "turn_1", "call_id": "call_0", "arguments": {"order_id": "B-2077"}},)},
        {"session": session(metadata={"order": "B-2077"})},
        {"session": session(agent={**session()["agent"], "instructions": "Orders look like B-2077."})},
    ],
)
def test_an_id_that_something_else_holds_is_no_chat(kept: dict[str, Any]) -> None:
    assert (
        build_chain(export(user("A-1042, then B-2077."), call(), result(), answer(), **kept)).findings == ()
    )


def test_what_ids_look_like_is_learned_from_the_values_under_their_names() -> None:
    agent = {**session()["agent"], "tools": []}
    said = user("First A-1042, then INV20260017, the ISO-8601 way.")
    history = (said, call(arguments={"invoice_no": "INV20260001", "order_id": "A-1042"}), result(), answer())
    chain = build_chain(export(*history, session=session(agent=agent)))
    assert only(chain, "id_only_in_chat").text.startswith("INV20260017 ")


def test_what_merely_looks_like_an_id_is_a_note_and_a_pattern_makes_it_a_problem() -> None:
    agent = {**session()["agent"], "tools": []}
    chat = export(user("Where is CASE-77001?"), answer(), session=session(agent=agent))
    assert only(build_chain(chat), "id_only_in_chat").severity == "note"
    assert only(build_chain(chat, id_patterns=[r"CASE-\d+"]), "id_only_in_chat").severity == "problem"


def test_an_item_of_an_unknown_turn_is_told() -> None:
    assert (
        "turn_7" in only(build_chain(export(user("Hello."), answer(turn_id="turn_7"))), "unknown_turn").text
    )


def test_a_call_that_is_listed_twice_is_told() -> None:
    chain = build_chain(export(user(), call(), call(id="fc_2"), result(), answer()))
    assert "call_twice" in kinds(chain)


def test_an_owed_call_with_a_result_or_another_turn_is_told() -> None:
    asked = session(status="requires_action", required_actions=[action()])
    assert "owed_but_answered" in kinds(build_chain(export(session=asked)))
    other = session(status="requires_action", required_actions=[action(turn_id="turn_2")])
    waiting = export(user(), call(), session=other, turns=(turn(1, status="waiting"), turn(2)))
    assert "owed_turn_drifted" in kinds(build_chain(waiting))


def test_an_owed_call_without_an_item_is_in_the_chain() -> None:
    asked = session(status="requires_action", required_actions=[action()])
    chain = build_chain(export(user(), session=asked, turns=(turn(status="waiting"),)))
    assert [(each.state, each.place, each.call_id) for each in chain.calls()] == [("owed", None, "call_3c91")]


@pytest.mark.parametrize(
    ("ledger", "kind"),
    [
        ({"session_id": "sess_other"}, "ledger_of_other_session"),
        ({"last_call_id": "call_9999"}, "ledger_unknown_call"),
        ({"last_call_id": "call_3c91", "awaiting": "tool_result"}, "ledger_awaits_nothing"),
        ({"awaiting": "tool_result"}, "ledger_awaits_nothing"),
    ],
)
def test_a_ledger_that_says_something_else_is_told(ledger: dict[str, Any], kind: str) -> None:
    only(build_chain(export(ledger=ledger)), kind)


def test_a_ledger_that_awaits_what_is_owed_agrees() -> None:
    asked = session(status="requires_action", required_actions=[action()])
    waiting = export(
        user(),
        call(status="in_progress"),
        session=asked,
        turns=(turn(status="waiting"),),
        ledger={"session_id": "sess_8f21", "last_call_id": "call_3c91", "awaiting": "tool_result"},
    )
    assert build_chain(waiting).findings == ()


def second(**changes: Any) -> Export:
    return export(session=session(id="sess_9999", created_at=1_760_000_060, **changes))


def unfinished() -> Export:
    asked = session(status="requires_action", required_actions=[action()])
    return export(user(), call(status="in_progress"), session=asked, turns=(turn(status="waiting"),))


def test_a_new_session_in_place_of_a_retry_is_told() -> None:
    (found,) = find_retries([second(), unfinished()])
    assert (found.kind, found.session_id) == ("retry_in_new_session", "sess_9999")
    assert "sess_8f21, 60 s later, which still waits for call_3c91" in found.text


def test_the_same_metadata_on_an_unfinished_session_is_a_retry_too() -> None:
    earlier = replace(unfinished(), session={**(unfinished().session or {}), "metadata": {"case": "7"}})
    other = replace(second(metadata={"case": "7"}), items=(user("Again please."), answer()))
    (found,) = find_retries([earlier, other])
    assert "the same metadata" in found.text


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_a_new_session_after_a_stopped_turn_is_a_retry(status: str) -> None:
    (found,) = find_retries([export(user(), turns=(turn(status=status),)), second()])
    assert found.kind == "retry_in_new_session"


def test_the_same_question_after_an_answer_or_a_failed_session_is_no_mistake() -> None:
    (found,) = find_retries([export(), second()])
    assert (found.kind, found.severity) == ("same_beginning", "note")
    gone = export(user(), session=session(status="failed"), turns=(turn(status="failed"),))
    (found,) = find_retries([gone, second()])
    assert (found.kind, found.severity) == ("same_beginning", "note")


def test_other_questions_and_other_agents_are_no_retry() -> None:
    elsewhere = second(agent={**session()["agent"], "instructions": "Sell."})
    assert find_retries([unfinished(), elsewhere]) == []
    other = replace(second(), items=(user("Something else."), answer()))
    assert find_retries([unfinished(), other]) == []
    assert find_retries([unfinished(), unfinished()]) == []


def test_every_kind_of_finding_is_a_trap_that_a_test_shows() -> None:
    text = "".join(file.read_text("utf-8") for file in Path(__file__).parent.glob("test_*.py"))
    unseen = {kind for kind in KINDS if f'"{kind}"' not in text}
    assert unseen == set()


def test_a_result_among_another_agents_items_is_told() -> None:
    both = with_subagent(user(), creation(), call(), answer(), of_subagent=(result(),))
    assert "result_in_other_thread" in kinds(build_chain(both))
    assert subagent()["id"] in str(build_chain(both).threads[1].subagent_id)


def test_an_export_of_a_session_in_motion_says_so() -> None:
    assert kinds(build_chain(export(settled=False))) == ["not_settled"]
