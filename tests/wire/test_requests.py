from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from perdure.wire.agents import SessionAgentParams
from perdure.wire.environments import EnvironmentCreate
from perdure.wire.errors import InvalidRequest
from perdure.wire.inputs import UserMessageInput
from perdure.wire.metadata import metadata_filter
from perdure.wire.pages import FileQuery, Page, PageQuery, SessionQuery, TokenPage
from perdure.wire.sessions import SessionCreate
from perdure.wire.usage import TokenUsage
from perdure.wire.validation import validate, validate_as
from perdure.wire.vaults import CredentialCreate, VaultCreate

from .bodies import ACCEPTED, HTTP, OAUTH, VARIABLE, credential, hosted, mcp, session


@pytest.mark.parametrize(("kind", "body"), ACCEPTED)
def test_every_kind_of_request_is_accepted(kind: Any, body: Any) -> None:
    adapter = kind if isinstance(kind, TypeAdapter) else TypeAdapter(kind)
    parsed = validate_as(adapter, body)
    stored = json.loads(adapter.dump_json(parsed, exclude_unset=True))
    assert validate_as(adapter, stored) == parsed


def test_a_text_input_is_one_user_message() -> None:
    body = validate(SessionCreate, session(input="Hello"))
    assert body.messages == [
        UserMessageInput.model_validate(
            {"role": "user", "content": [{"type": "input_text", "text": "Hello"}]}
        )
    ]
    started = {"agent_id": "agt_a", "environment": hosted(), "input": None}
    assert validate(SessionCreate, started).messages == []


def test_vaults_are_kept_in_order_and_once() -> None:
    body = validate(SessionCreate, session(vault_ids=["b", "a", *"b" * 12]))
    assert body.vault_ids == ["b", "a"]
    assert validate(EnvironmentCreate, {"environment": hosted(), "vault_ids": ["a"] * 11}).vault_ids == ["a"]


def test_omitted_and_null_members_can_be_told_apart() -> None:
    body = validate(SessionAgentParams, {"tools": None, "model": "m"})
    assert body.model_fields_set == {"tools", "model"}


def test_a_vault_name_is_trimmed_and_hosts_are_lower_cased() -> None:
    assert validate(VaultCreate, {"name": "  team "}).name == "team"
    auth = validate(CredentialCreate, credential(**VARIABLE)).auth
    assert auth.type == "environment_variable"
    assert auth.networking.model_dump()["allowed_hosts"] == ["shop.example.org", "10.0.0.7"]


def test_secrets_do_not_show_in_a_repr() -> None:
    body = validate(
        SessionCreate,
        session(
            mcp({**HTTP, "authorization": "CANARY", "headers": {"X-Key": "CANARY"}}),
            environment=hosted(env={"KEY": "CANARY"}, setup_commands=[{"command": "CANARY"}]),
        ),
    )
    assert "CANARY" not in repr(body)
    leaky = {
        **OAUTH,
        "access_token": "CANARY",
        "refresh": {**OAUTH["refresh"], "refresh_token": "CANARY"},
    }
    assert "CANARY" not in repr(validate(CredentialCreate, credential(**leaky)))
    assert "CANARY" not in repr(
        validate(CredentialCreate, credential(**{**VARIABLE, "secret_value": "CANARY"}))
    )


def test_a_refusal_does_not_repeat_secrets() -> None:
    with pytest.raises(InvalidRequest) as refusal:
        validate(SessionCreate, session(mcp({**HTTP, "authorization": "CANARY\n"})))
    assert refusal.value.param == "agent.tools[0].transport.authorization"
    assert "CANARY" not in refusal.value.message


def test_queries_are_read_from_text() -> None:
    assert validate(PageQuery, {}).model_dump() == {"limit": 20, "order": "desc", "after": None}
    assert validate(PageQuery, {"limit": "100", "order": "asc", "after": "x"}).limit == 100
    assert validate(SessionQuery, {"agent_id": "agt_a"}).agent_id == "agt_a"
    assert validate(FileQuery, {"page": "token", "path": "/workspace"}).page == "token"


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ({"limit": "0"}, "limit"),
        ({"limit": "101"}, "limit"),
        ({"limit": "1.5"}, "limit"),
        ({"limit": ""}, "limit"),
        ({"order": "random"}, "order"),
        ({"after": ""}, "after"),
        ({"after": "a" * 600}, "after"),
        ({"limt": "5"}, "limt"),
    ],
)
def test_a_bad_list_query_is_refused(query: Any, param: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        validate(PageQuery, query)
    assert refusal.value.param == param


def test_a_metadata_filter_takes_only_its_own_parameters() -> None:
    assert metadata_filter([("metadata[a.b]", "1"), ("limit", "2"), ("metadata[c]", "")]) == {
        "a.b": "1",
        "c": "",
    }


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ([("metadata", "x")], "metadata"),
        ([("metadata[]", "x")], "metadata"),
        ([("metadata[a", "x")], "metadata"),
        ([("metadata[" + "k" * 65 + "]", "x")], "metadata"),
        ([("metadata[a]", "x" * 513)], "metadata[a]"),
        ([("metadata[a]", "x"), ("metadata[a]", "y")], "metadata[a]"),
        ([(f"metadata[{n}]", "x") for n in range(17)], "metadata"),
    ],
)
def test_a_bad_metadata_filter_is_refused(query: Any, param: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        metadata_filter(query)
    assert refusal.value.param == param


def test_a_page_names_its_first_and_last_resource() -> None:
    class Named(TokenUsage):
        id: str

    one = TokenUsage.of(1, 2).model_dump()
    page = Page[Named].of([Named(**one, id="a"), Named(**one, id="b")], has_more=True)
    assert (page.object, page.first_id, page.last_id, page.has_more) == ("list", "a", "b", True)
    empty = Page[Named].of([], has_more=False)
    assert (empty.first_id, empty.last_id) == (None, None)
    assert TokenPage[TokenUsage](data=[], has_more=False).model_dump() == {
        "object": "page",
        "data": [],
        "next": None,
        "has_more": False,
    }


junk = st.sampled_from(
    [None, True, 0, -1, 1.5, "", "x", "function", [], [[]], ["x"], {}, {"type": []}, {"type": {}}, {"a": 1}]
)


def places(value: Any) -> list[tuple[str | int, ...]]:
    """Where a JSON value has members and elements."""
    steps = list(value) if isinstance(value, dict) else list(range(len(value)))
    return [
        (step, *below)
        for step in steps
        for below in [(), *(places(value[step]) if isinstance(value[step], (dict, list)) else [])]
    ]


@settings(max_examples=600, deadline=None)
@given(st.data())
def test_a_body_with_any_member_spoilt_is_accepted_or_refused_in_words(data: st.DataObject) -> None:
    kind, sample = data.draw(st.sampled_from(ACCEPTED))
    adapter: TypeAdapter[Any] = kind if isinstance(kind, TypeAdapter) else TypeAdapter(kind)
    body: Any = {"body": json.loads(json.dumps(sample))}
    *above, last = data.draw(st.sampled_from([("body",), *(("body", *path) for path in places(sample))]))
    holder = body
    for step in above:
        holder = holder[step]
    holder[last] = data.draw(junk)
    try:
        validate_as(adapter, body["body"])
    except InvalidRequest as refused:
        event(refused.message)
        # A path is made of members of the body, never of the names of models or branches.
        named = re.findall(r"[A-Za-z_$]+", refused.param or "")
        assert not any(part.endswith(("Params", "Tool", "Input")) or part == "list" for part in named)
