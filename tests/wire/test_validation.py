from __future__ import annotations

from typing import Annotated, Any

import pytest
from fastapi import FastAPI, Query
from fastapi.exceptions import RequestValidationError
from fastapi.testclient import TestClient
from pydantic import BaseModel, field_validator

from perdure.wire.agents import AgentCreate
from perdure.wire.errors import InvalidRequest
from perdure.wire.inputs import EventBatch
from perdure.wire.pages import PageQuery
from perdure.wire.sessions import SessionCreate
from perdure.wire.shapes import Request, refusal
from perdure.wire.validation import dotted, invalid_request, validate

from .bodies import FUNCTION, HTTP, mcp, result, session


def message(kind: type[BaseModel], body: Any) -> str:
    with pytest.raises(InvalidRequest) as refused:
        validate(kind, body)
    return refused.value.message


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (
            session({key: value for key, value in FUNCTION.items() if key != "parameters"}),
            "Missing required parameter: 'agent.tools[0].parameters'.",
        ),
        (
            session({**FUNCTION, "parameterz": {}}),
            "Unknown parameter: 'agent.tools[0].parameterz'.",
        ),
        (
            session(agent={"model": "m", "tools": {}}),
            "Invalid type for 'agent.tools': expected an array, but got an object instead.",
        ),
        (
            session(agent="m"),
            "Invalid type for 'agent': expected an object, but got a string instead.",
        ),
        (
            session(stream="yes"),
            "Invalid type for 'stream': expected a boolean, but got a string instead.",
        ),
        (
            session(metadata={"k": 1.5}),
            "Invalid type for 'metadata.k': expected a string, but got a decimal number instead.",
        ),
        (
            session(environment={"type": "moon"}),
            "Invalid value: 'moon'. Supported values are: 'none', 'openai_hosted', and 'self_hosted'.",
        ),
        (session(environment={}), "Missing required parameter: 'environment.type'."),
        (
            session(environment={"type": None}),
            "Invalid type for 'environment.type': expected one of 'none', 'openai_hosted', or 'self_hosted', "
            "but got null instead.",
        ),
        (
            session(review="always"),
            "Invalid value: 'always'. Supported values are: 'none' and 'auto_review'.",
        ),
        (
            session(review=False),
            "Invalid type for 'review': expected one of 'none' or 'auto_review', but got a boolean instead.",
        ),
        (
            session(input=[{"role": "system", "content": []}]),
            "Invalid value: 'system'. Supported values are: 'user'.",
        ),
        (
            session(metadata={str(n): "" for n in range(17)}),
            "Invalid 'metadata': too many properties. Expected an object with at most 16 properties, but got "
            "17 instead.",
        ),
        (
            session(agent_id="a" * 65),
            "Invalid 'agent_id': string too long. Expected a string with maximum length 64, but got a string "
            "with length 65 instead.",
        ),
        (
            session(agent={"model": ""}),
            "Invalid 'agent.model': string too short. Expected a string with minimum length 1, but got an "
            "empty string instead.",
        ),
        (session(agent={}), "agent.model is required when agent_id is omitted"),
        (session(input=None), "conversation-only sessions currently require initial input"),
        (
            session(input=None, stream=True, environment={"type": "openai_hosted"}),
            "streaming session creation requires initial input",
        ),
        ([], "The request body must be an object, but it is an array."),
    ],
)
def test_faults_of_a_session_read_as_documented(body: Any, text: str) -> None:
    assert message(SessionCreate, body) == text


def test_limits_say_what_was_expected_and_what_came() -> None:
    agent = {"model": "m", "multi_agent": {"enabled": True, "max_concurrent_subagents": 0}}
    assert message(AgentCreate, agent) == (
        "Invalid 'multi_agent.max_concurrent_subagents': integer below minimum value. Expected a value >= 1, "
        "but got 0 instead."
    )
    assert message(PageQuery, {"limit": "101"}) == (
        "Invalid 'limit': integer above maximum value. Expected a value <= 100, but got 101 instead."
    )
    assert message(EventBatch, {"events": [{}] * 65}) == (
        "Invalid 'events': array too long. Expected an array with maximum length 64, but got an array with "
        "length 65 instead."
    )
    event = {"type": "agent.session.input.message", "input": []}
    assert message(EventBatch, {"events": [event]}) == (
        "Invalid 'events[0].input': array too short. Expected an array with minimum length 1, but got an "
        "empty array instead."
    )


def test_an_object_as_a_result_is_told_to_be_serialised() -> None:
    assert message(EventBatch, result(output={"degrees": 7})) == (
        "Invalid type for 'events[0].output': expected a string or an array of content parts, but got an "
        "object instead. Serialise other results to a JSON string."
    )


def test_a_rejected_value_is_shown_for_enumerations_only_and_shortened() -> None:
    shown = message(SessionCreate, session(review="x" * 5_000))
    assert shown.startswith(f"Invalid value: '{'x' * 63}…'.")
    assert "CANARY" not in message(SessionCreate, session(metadata="CANARY"))
    assert "CANARY" not in message(SessionCreate, session(mcp({**HTTP, "server_url": "CANARY"})))
    assert "CANARY" not in message(SessionCreate, session(agent_id="CANARY" * 20))


def test_a_misspelt_member_is_named_before_the_missing_one() -> None:
    misspelt = {**FUNCTION, "parameterz": FUNCTION["parameters"]}
    del misspelt["parameters"]
    assert message(SessionCreate, session(misspelt)) == "Unknown parameter: 'agent.tools[0].parameterz'."


@pytest.mark.parametrize(
    ("tool", "param"),
    [
        ({**FUNCTION, "function": 1}, "agent.tools[0].function"),
        ({**FUNCTION, "type": "mcp"}, "agent.tools[0].server_label"),
        (mcp({**HTTP, "headers": {"http": 1}}), "agent.tools[0].transport.headers.http"),
        (mcp({**HTTP, "http": 1}), "agent.tools[0].transport.http"),
        (mcp({"type": "http", "server_url": 1}), "agent.tools[0].transport.server_url"),
    ],
)
def test_members_named_like_the_kind_of_a_union_keep_their_name(tool: Any, param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        validate(SessionCreate, session(tool))
    assert refused.value.param == param


def test_a_member_may_be_called_like_its_kind() -> None:
    files = [{"type": "file_id", "file_id": 5, "path": "/workspace/a"}]
    with pytest.raises(InvalidRequest) as refused:
        validate(SessionCreate, session(environment={"type": "openai_hosted", "files": files}))
    assert refused.value.param == "environment.files[0].file_id"


def test_long_member_names_are_shortened_in_a_path() -> None:
    assert dotted(["a", 0, "b" * 100]) == f"a[0].{'b' * 63}…"
    with pytest.raises(InvalidRequest) as refused:
        validate(SessionCreate, session(**{"x" * 10_000: 1}))
    assert len(refused.value.message) < 200


class _Ruled(Request):
    name: str
    age: int = 0

    @field_validator("name")
    @classmethod
    def _check(cls, name: str) -> str:
        if name == "plain":
            raise ValueError("Choose another name.")
        if name == "chosen":
            raise refusal("'{param}' must not be {got}.", "first", 0, code="bad_name")
        return name


def test_a_rule_of_our_own_keeps_its_text_and_chooses_its_place_and_code() -> None:
    with pytest.raises(InvalidRequest) as plain:
        validate(_Ruled, {"name": "plain"})
    assert (plain.value.message, plain.value.param) == ("Choose another name.", "name")
    with pytest.raises(InvalidRequest) as chosen:
        validate(_Ruled, {"name": "chosen"})
    assert chosen.value.message == "'name.first[0]' must not be a string."
    assert (chosen.value.param, chosen.value.code) == ("name.first[0]", "bad_name")


def test_faults_found_by_the_web_framework_lose_where_they_were_found() -> None:
    app = FastAPI()
    seen: list[InvalidRequest] = []

    @app.post("/x")
    def create(body: SessionCreate, page: Annotated[PageQuery, Query()]) -> None: ...

    @app.exception_handler(RequestValidationError)
    def refuse(_: Any, error: RequestValidationError) -> Any:
        seen.append(invalid_request(error.errors(), error.body, located=True))
        raise AssertionError

    client = TestClient(app, raise_server_exceptions=False)
    client.post("/x", json=session({"type": "function"}))
    client.post("/x?limit=0", json=session())
    assert [error.param for error in seen] == ["agent.tools[0].name", "limit"]
