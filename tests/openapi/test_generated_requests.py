"""Requests generated from our own OpenAPI document, valid and broken: never a 5xx, never undeclared.

The statuses, content types and bodies of all answers must be those that the document declares.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from openai import OpenAI
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from tests.server import ServerProcess, scripted_config

from perdure.api.app import create_app

SCRIPT = '[otherwise]\nanswer = [{ text = "You said: {user}" }]\n'
CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    home = tmp_path_factory.mktemp("openapi")
    config = scripted_config(home, {"echo": SCRIPT}, "[server]\nkeepalive = 0.2\n")
    with ServerProcess(config, home / "data") as process:
        yield process


@pytest.fixture(scope="module")
def known(server: ServerProcess) -> dict[str, str]:
    """Ids that exist, so that half of the requests get past the look-up."""
    agents = OpenAI(base_url=server.base_url, api_key=server.api_key).beta.agents
    session = agents.sessions.create(agent={"model": "echo"}, environment={"type": "none"}, input="Hello.")
    (turn,) = agents.sessions.turns.list(session.id).data
    return {"agent_id": agents.create(model="echo").id, "session_id": session.id, "turn_id": turn.id}


def document() -> dict[str, Any]:
    """The document, as any server serves it."""
    return create_app().openapi()


# The endless event stream answers no generated client in time; its frames have tests of their own.
OPERATIONS = [
    (method.upper(), path)
    for path, methods in document()["paths"].items()
    for method in methods
    if (method, path) != ("get", "/v1/agents/sessions/{session_id}/events")
]


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_no_generated_request_is_answered_outside_the_document(
    server: ServerProcess, known: dict[str, str], method: str, path: str, request: pytest.FixtureRequest
) -> None:
    schema = schemathesis.openapi.from_dict(document())
    headers = {"Authorization": f"Bearer {server.api_key}", "OpenAI-Beta": "agents=v1"}
    examples = 400 if request.config.getoption("--long", default=False) else 30

    @settings(
        max_examples=examples,
        deadline=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(data=st.data())
    def send(data: st.DataObject) -> None:
        broken = data.draw(st.booleans())
        mode = GenerationMode.NEGATIVE if broken else GenerationMode.POSITIVE
        case = data.draw(schema[path][method].as_strategy(generation_mode=mode))
        if data.draw(st.booleans()):
            case.path_parameters = {
                name: known.get(name, value) for name, value in case.path_parameters.items()
            }
        if isinstance(case.body, dict):
            # A creation stream is an endless answer until its turn ends; it has tests of its own.
            case.body.pop("stream", None)
        case.call_and_validate(base_url=server.url, headers=headers, checks=CHECKS, timeout=30)

    send()
