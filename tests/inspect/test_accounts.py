"""A chain leaves nothing out and counts nothing twice, whatever the history holds."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.inspect import Export, Redactor, Thread, build_chain, export_of, find_path
from perdure.inspect.history import ROLES
from perdure.inspect.links import Orphan, places_of
from perdure.wire.items import ItemAdapter

# Few names, so that they meet: equal, drifted, of another turn, missing, of the wrong type.
IDS = st.sampled_from(["call_1", "call_2", "call_1 ", "fc_1", None, 7])
TURNS = st.sampled_from(["turn_1", "turn_2", "turn_9", None])
ITEM_IDS = st.sampled_from(["fc_1", "fc_2", "msg_1", None, 3])
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.text("aA1-\ud800\x1b", max_size=6))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(["order_id", "b"]), inner, max_size=2)
    ),
    max_leaves=4,
)
TEXTS = VALUES.map(json.dumps) | VALUES
ITEMS = st.fixed_dictionaries(
    {"type": st.sampled_from([*ROLES, "handoff"]), "turn_id": TURNS, "id": ITEM_IDS},
    optional={
        "call_id": IDS,
        "status": st.sampled_from(["completed", "incomplete", "failed", "in_progress", None]),
        "role": st.sampled_from(["user", "assistant"]),
        "name": st.sampled_from(["lookup_order", None]),
        "arguments": TEXTS,
        "output": TEXTS,
        "error": st.none() | st.text(max_size=3),
        "content": st.lists(
            st.fixed_dictionaries({"type": st.just("input_text"), "text": TEXTS}), max_size=2
        ),
        "sender_agent_id": IDS,
        "recipient_agent_id": IDS,
        "recipient_agent_ids": st.lists(IDS, max_size=2),
        "agent_id": st.sampled_from(["agt_main", "sub_1"]),
    },
)
TURN = st.fixed_dictionaries(
    {"id": TURNS, "status": st.sampled_from(["completed", "failed", "cancelled", "waiting", None])},
    optional={"subagent_id": st.sampled_from([None, "sub_1"]), "error": VALUES},
)
ACTION = st.fixed_dictionaries(
    {"type": st.sampled_from(["function_call", "mcp_approval_request"])},
    optional={"call_id": IDS, "turn_id": TURNS},
)
SESSION = st.none() | st.fixed_dictionaries(
    {
        "id": st.just("sess_1"),
        "status": st.sampled_from(["idle", "requires_action", "in_progress", "failed"]),
    },
    optional={"required_actions": st.lists(ACTION, max_size=3), "agent": VALUES, "metadata": VALUES},
)
SUBAGENT = st.fixed_dictionaries(
    {"id": st.sampled_from(["sub_1", None])},
    optional={"parent_agent_id": st.sampled_from(["agt_main", None]), "opened_at": SCALARS},
)
RESULTS = st.fixed_dictionaries(
    {"type": st.just("agent.session.input.tool_result")},
    optional={"call_id": IDS, "turn_id": TURNS, "success": st.booleans(), "output": TEXTS},
)
ITEM_LISTS = st.lists(ITEMS, max_size=6).map(tuple)
EXPORTS = st.builds(
    Export,
    session=SESSION,
    turns=st.lists(TURN, max_size=3).map(tuple),
    items=ITEM_LISTS,
    subagents=st.lists(
        st.builds(Thread, turns=st.lists(TURN, max_size=2).map(tuple), items=ITEM_LISTS, subagent=SUBAGENT),
        max_size=2,
    ).map(tuple),
    inputs=st.lists(RESULTS, max_size=2).map(tuple),
    ledger=VALUES,
    journal=st.none() | st.lists(RESULTS, max_size=2).map(tuple),
)


@given(EXPORTS)
@settings(max_examples=400, deadline=None)
def test_every_item_is_in_the_chain_exactly_once(export: Export) -> None:
    chain = build_chain(export)
    places = sorted((place.thread, place.index) for place in places_of(chain))
    assert places == [
        (number, index) for number, thread in enumerate(export.threads) for index in range(len(thread.items))
    ]
    for place in places_of(chain):
        item = export.threads[place.thread].items[place.index]
        assert item["type"] == place.type
        assert item["id"] == place.id or place.id is None


@given(EXPORTS)
@settings(max_examples=200, deadline=None)
def test_nothing_is_owed_but_what_required_actions_list(export: Export) -> None:
    chain = build_chain(export)
    listed = [
        action.get("call_id") for action in export.required_actions if action["type"] == "function_call"
    ]
    owed = [call.call_id for call in chain.calls() if call.state == "owed"]
    assert set(owed) <= {each for each in listed if isinstance(each, str)} | {None}
    assert len(chain.owed) == len(export.required_actions)


@given(EXPORTS)
@settings(max_examples=200, deadline=None)
def test_every_result_is_of_one_call_or_an_orphan(export: Export) -> None:
    chain = build_chain(export)
    held = [result.place for call in chain.calls() for result in call.results if result.place is not None]
    for thread in chain.threads:
        for turn in thread.turns:
            orphans = [entry.result.place for entry in turn.entries if isinstance(entry, Orphan)]
            held += [place for place in orphans if place is not None]
    count = sum(item["type"] == "function_call_output" for thread in export.threads for item in thread.items)
    assert len(held) == count


@given(EXPORTS)
@settings(max_examples=100, deadline=None)
def test_an_export_survives_its_file_and_its_chain_is_json(export: Export) -> None:
    document = json.loads(json.dumps(export.document()))
    again = export_of(document, "file")
    assert again.document() == document
    json.dumps(build_chain(again).document())


@given(EXPORTS)
@settings(max_examples=100, deadline=None)
def test_no_masked_value_is_left_under_its_name(export: Export) -> None:
    masked = Redactor(["order_id"]).export(export)
    left: list[Any] = [
        hit.value
        for hit in find_path("$..order_id", masked.document())
        if not str(hit.value).startswith("[redacted ")
    ]
    assert left == []


def test_every_item_type_of_the_protocol_has_a_role() -> None:
    schema = json.dumps(ItemAdapter.json_schema())
    types = {kind for kind in ROLES if f'"const": "{kind}"' in schema}
    assert types == set(ROLES)
    definitions = ItemAdapter.json_schema()["$defs"].items()
    items = {shape["properties"]["type"]["const"] for name, shape in definitions if name.endswith("Item")}
    assert items == set(ROLES)
