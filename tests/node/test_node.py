"""The official Node.js client against a real server: `core.mjs` runs the checks, one test reports each."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.server import ServerProcess, scripted_config

HERE = Path(__file__).parent
CLIENT = HERE / "node_modules" / "openai"
TIMEOUT = 300.0

pytestmark = pytest.mark.node

# The model `scripted` is always there; these are the others that the checks name.
MODELS = {
    "greeter": """
[otherwise]
answer = [{ chunks = ["Hello ", "from ", "the greeter."] }]
""",
    "slow": """
[otherwise]
answer = [{ text = "This takes about half a second.", delta_size = 2, pause = 0.03 }]
""",
    "failing": """
[otherwise]
answer = [{ fault = "authentication_error", message = "The provider refused the key." }]
""",
    "parallel": """
[[rule]]
when = { newest = "result" }
answer = [{ text = "Both are in." }]

[otherwise]
answer = [
    { call = "lookup_order", arguments = { order_id = "A-1042" } },
    { call = "lookup_order", arguments = { order_id = "B-2077" } },
]
""",
    "weather-report": """
[otherwise]
answer = [{ json = { city = "Oslo", degrees = 7 } }]
""",
}

CHECKS = [
    "agent_is_created_and_retrieved",
    "agent_is_updated",
    "agents_are_listed_newest_first",
    "agent_is_deleted",
    "session_copies_its_saved_agent",
    "session_without_a_stream_reaches_idle",
    "created_stream_tells_the_turn_in_order",
    "created_stream_collects_its_result",
    "result_can_be_collected_while_iterating",
    "structured_output_is_parsed",
    "follow_up_turn_is_streamed",
    "follow_up_of_a_busy_session_is_refused_by_the_client",
    "failed_turn_is_a_result_error",
    "session_is_updated",
    "session_is_deleted_and_its_streams_end",
    "handlers_run_while_a_session_is_created",
    "handlers_run_in_a_follow_up_turn",
    "parallel_calls_are_answered_one_by_one",
    "failing_handler_is_a_failed_result",
    "bad_arguments_never_reach_the_handler",
    "validating_function_tool_works",
    "result_of_content_parts_is_kept",
    "call_is_answered_by_hand",
    "unregistered_call_is_left_to_the_application",
    "idle_session_says_so_first",
    "subscriber_hears_a_turn_that_another_starts",
    "waiting_session_repeats_its_call",
    "breaking_off_does_not_stop_the_turn",
    "same_idempotency_key_adds_one_message",
    "cancel_ends_a_waiting_turn",
    "cancel_ends_a_created_stream",
    "items_are_paged",
    "items_of_a_turn_are_paged",
    "sessions_are_filtered",
    "unknown_session_is_not_found",
    "unknown_model_is_not_found",
    "wrong_key_is_refused",
    "wrong_beta_header_is_refused",
    "invalid_body_names_its_field",
    "refused_stream_is_an_error_and_no_stream",
    "deleting_a_waiting_session_is_a_conflict_and_not_retried",
    "second_different_result_is_a_conflict_and_not_retried",
    "result_of_an_unknown_call_is_told_in_the_agreed_words",
    "turn_of_another_session_is_not_found",
]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What `core.mjs` found, by check."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    if not CLIENT.is_dir():
        pytest.skip(f"the Node.js client is not installed: run `npm install` in {HERE} (scripts/test does)")
    home = tmp_path_factory.mktemp("node")
    with ServerProcess(scripted_config(home, MODELS), home / "data") as server:
        done = subprocess.run(
            [node, "core.mjs"],
            cwd=HERE,
            env={"PERDURE_URL": server.url, "PERDURE_API_KEY": server.api_key},
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=TIMEOUT,
            check=False,
        )
        assert done.stdout, done.stderr
        yield json.loads(done.stdout)


def test_the_client_is_the_one_we_promise(report: dict[str, Any]) -> None:
    wanted = json.loads((HERE / "package.json").read_text(encoding="utf-8"))["dependencies"]["openai"]
    assert report["sdk"] == wanted


def test_every_check_has_a_test(report: dict[str, Any]) -> None:
    assert sorted(check["name"] for check in report["checks"]) == sorted(CHECKS)


@pytest.mark.parametrize("name", CHECKS)
def test_the_node_client_agrees(report: dict[str, Any], name: str) -> None:
    (check,) = (check for check in report["checks"] if check["name"] == name)
    assert check["ok"], check["error"]
