from __future__ import annotations

import re

import pytest
from openai import APIStatusError

from perdure.wire import errors, ids
from perdure.wire.errors import ApiError, ErrorEnvelope
from perdure.wire.usage import TokenUsage


@pytest.mark.parametrize(
    ("error", "status", "kind", "code"),
    [
        (errors.InvalidRequest("No."), 400, "invalid_request_error", "invalid_request_error"),
        (errors.PayloadTooLarge(10), 400, "invalid_request_error", "invalid_request_error"),
        (errors.InvalidBeta(), 400, "invalid_request_error", "invalid_beta"),
        (errors.Unauthorized(), 401, "authentication_error", "unauthorized"),
        (errors.Forbidden(), 403, "permission_error", "forbidden"),
        (errors.NotFound(), 404, "invalid_request_error", "not_found_error"),
        (errors.ModelNotFound("m" * 500, "model"), 404, "invalid_request_error", "model_not_found"),
        (errors.Conflict("Busy."), 409, "invalid_request_error", "conflict_error"),
        (
            errors.McpStartupFailed("orders", "timed out."),
            424,
            "invalid_request_error",
            "mcp_server_startup_failed",
        ),
        (errors.RateLimited(), 429, "rate_limit_error", "rate_limit_exceeded"),
        (errors.InternalError(), 500, "server_error", "internal_error"),
        (errors.ServiceUnavailable(), 503, "server_error", "service_unavailable_error"),
        (
            errors.ServiceUnavailable(code="server_is_overloaded"),
            503,
            "server_error",
            "server_is_overloaded",
        ),
    ],
)
def test_every_error_is_an_envelope_with_its_status_type_and_code(
    error: ApiError, status: int, kind: str, code: str
) -> None:
    assert (error.status, error.type, error.code) == (status, kind, code)
    assert ErrorEnvelope.model_validate(error.body()).model_dump() == error.body()
    assert 0 < len(error.message) < 300
    assert str(error) == error.message
    assert set(error.body()["error"]) == {"message", "type", "code", "param"}
    assert not isinstance(error, APIStatusError)


def test_a_conflict_tells_the_client_not_to_retry() -> None:
    assert errors.Conflict("Busy.").headers == {"x-should-retry": "false"}


def test_a_temporary_error_says_when_to_come_back() -> None:
    assert errors.RateLimited(retry_after=0.2).headers == {"retry-after": "1"}
    assert errors.ServiceUnavailable(retry_after=2.5).headers == {"retry-after": "3"}
    assert errors.ServiceUnavailable().headers == {}


def test_an_unknown_resource_reads_the_same_whatever_it_is() -> None:
    assert errors.NotFound().body() == errors.NotFound().body()
    assert errors.NotFound().param is None


def test_ids_are_prefixed_random_and_distinct() -> None:
    made = {ids.new_id(ids.SESSION) for _ in range(2_000)}
    assert len(made) == 2_000
    assert all(re.fullmatch(r"sess_[0-9A-Za-z]{24}", one) for one in made)
    assert len({one[5] for one in made}) == 62
    assert len({one[-1] for one in made}) == 62


def test_every_kind_of_item_has_a_prefix_of_its_own() -> None:
    from perdure.wire.items import OUTPUT_ITEM_TYPES

    others = {"function_call_output", "agent_message", "computer_use_approval_request_result"}
    assert set(ids.ITEM) == OUTPUT_ITEM_TYPES | others
    assert len(set(ids.ITEM.values())) == len(ids.ITEM)


def test_usage_adds_up() -> None:
    one = TokenUsage.of(100, 20, cached_tokens=80, reasoning_tokens=5)
    assert one.total_tokens == 120
    assert (one + one).model_dump() == {
        "input_tokens": 200,
        "input_tokens_details": {"cached_tokens": 160},
        "output_tokens": 40,
        "output_tokens_details": {"reasoning_tokens": 10},
        "total_tokens": 240,
    }
