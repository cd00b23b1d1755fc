from __future__ import annotations

import email.utils
import re
import time
from typing import Any

import aiohttp
import pytest

from perdure.config.settings import ProviderSettings
from perdure.models import faults
from perdure.models.fault_text import MASK, clean, retry_after
from perdure.models.jsontext import encode

PROVIDER = ProviderSettings.model_validate(
    {
        "name": "acme",
        "protocol": "chat",
        "base_url": "http://127.0.0.1:9/v1",
        "api_key": "super-secret",
        "headers": {"x-gate": "open-sesame"},
    }
)


def refused(status: int, body: Any = b"", **headers: str) -> Any:
    data = body if isinstance(body, bytes) else encode(body)
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return faults.refused(PROVIDER, status, names, data)


def openai(message: str = "No.", *, code: Any = None, type: str | None = None) -> dict[str, Any]:
    type = type or "invalid_request_error"
    return {"error": {"message": message, "type": type, "param": None, "code": code}}


def anthropic(type: str, message: str = "No.") -> dict[str, Any]:
    return {"type": "error", "error": {"type": type, "message": message}}


@pytest.mark.parametrize(
    ("status", "code", "retryable"),
    [
        (400, "invalid_request", False),
        (401, "authentication_error", False),
        (402, "credit_balance_exhausted", False),
        (403, "authentication_error", False),
        (404, "resource_not_found", False),
        (405, "invalid_request", False),
        (408, "request_timeout", True),
        (409, "server_error", True),
        (410, "resource_not_found", False),
        (413, "invalid_request", False),
        (422, "invalid_request", False),
        (425, "server_overloaded", True),
        (429, "rate_limit_exceeded", True),
        (500, "server_error", True),
        (502, "server_error", True),
        (503, "server_overloaded", True),
        (504, "server_error", True),
        (524, "server_error", True),
        (529, "server_overloaded", True),
    ],
)
def test_a_status_alone_is_enough(status: int, code: str, retryable: bool) -> None:
    for body in (b"", b"<html>\n<body>Bad gateway</body></html>", openai()):
        error = refused(status, body)
        assert (error.code, error.retryable, error.status) == (code, retryable, status)
        assert '"acme"' in error.message
        assert str(status) in error.message


@pytest.mark.parametrize(
    ("status", "body", "code", "retryable"),
    [
        # OpenAI
        (400, openai(code="context_length_exceeded"), "context_length_exceeded", False),
        (429, openai(code="insufficient_quota", type="insufficient_quota"), "usage_limit_exceeded", False),
        (429, openai(code="billing_not_active"), "billing_not_active", False),
        (429, openai(code="rate_limit_exceeded", type="tokens"), "rate_limit_exceeded", True),
        (429, openai(code="project_spend_limit_exceeded"), "project_spend_limit_exceeded", False),
        (429, openai("Resource Unavailable", code="resource_unavailable"), "flex_unavailable", True),
        (
            429,
            openai(
                "Request too large for gpt-x in organization org-1 on tokens per min (TPM): Limit 30000,"
                " Requested 56781. The input or output tokens must be reduced.",
                code="rate_limit_exceeded",
                type="tokens",
            ),
            "context_length_exceeded",
            False,
        ),
        (400, openai(code="cyber_policy"), "cyber_policy", False),
        (400, openai(code="misalignment_policy_violation"), "misalignment_policy_violation", False),
        (400, openai(code="content_policy_violation"), "invalid_request", False),
        (400, openai("Invalid image.", code="invalid_image"), "invalid_request", False),
        (404, openai(code="model_not_found"), "resource_not_found", False),
        (400, openai(code="model_not_found"), "resource_not_found", False),
        (401, openai(code="invalid_api_key"), "authentication_error", False),
        (503, openai("Slow down", code="slow_down"), "server_overloaded", True),
        # Azure
        (
            400,
            openai("The response was filtered due to the prompt triggering content management policy."),
            "invalid_request",
            False,
        ),
        (404, openai(code="DeploymentNotFound"), "resource_not_found", False),
        # Anthropic and Gemini
        (529, anthropic("overloaded_error"), "server_overloaded", True),
        (413, anthropic("request_too_large"), "invalid_request", False),
        (
            400,
            anthropic("invalid_request_error", "Your credit balance is too low to access the API."),
            "credit_balance_exhausted",
            False,
        ),
        (
            429,
            [{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "Quota exceeded for x."}}],
            "usage_limit_exceeded",
            False,
        ),
        (
            429,
            {
                "error": {
                    "code": 429,
                    "status": "RESOURCE_EXHAUSTED",
                    "message": "You exceeded your current quota.",
                    "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34s"}],
                }
            },
            "rate_limit_exceeded",
            True,
        ),
        # Routers and local servers
        (402, {"error": {"code": 402, "message": "Insufficient credits"}}, "credit_balance_exhausted", False),
        (
            502,
            {
                "error": {
                    "code": 502,
                    "message": "Provider returned error",
                    "metadata": {"raw": '{"error":{"message":"maximum context length is 8192 tokens"}}'},
                }
            },
            "context_length_exceeded",
            False,
        ),
        (403, {"error": {"code": 403, "message": "Your input was flagged"}}, "invalid_request", False),
        (
            400,
            {"object": "error", "message": "No.", "type": "BadRequestError", "code": 400},
            "invalid_request",
            False,
        ),
        (422, {"detail": [{"loc": ["body", "messages"], "msg": "field required"}]}, "invalid_request", False),
        (404, {"detail": "Not Found"}, "resource_not_found", False),
        (404, {"error": 'model "x" not found, try pulling it first'}, "resource_not_found", False),
        (500, {"error": "the model is currently overloaded"}, "server_overloaded", True),
    ],
)
def test_what_a_provider_says_wins_over_its_status(
    status: int, body: Any, code: str, retryable: bool
) -> None:
    error = refused(status, body)
    assert (error.code, error.retryable) == (code, retryable)


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 128000 tokens. You sent 130000 tokens.",
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
        "prompt is too long: 210000 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 190000 + 21333 > 200000",
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048575).",
        "the request exceeds the available context size. try increasing the context size",
        "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
        "This model's maximum prompt length is 131072 but the request contains 140000 tokens.",
        "Please reduce the length of the messages or completion.",
        "The number of tokens to keep from the initial prompt is greater than the context length.",
        "Input is too long for requested model.",
    ],
)
def test_an_overflow_is_known_by_its_words(message: str) -> None:
    for status in (400, 413, 422, 500):
        assert refused(status, {"error": {"message": message}}).code == "context_length_exceeded"
    assert faults.reported(PROVIDER, {"message": message}).code == "context_length_exceeded"


@pytest.mark.parametrize(
    ("error", "code", "retryable"),
    [
        ({"code": "server_error", "message": "x"}, "server_error", True),
        ({"code": "rate_limit_exceeded", "message": "x"}, "rate_limit_exceeded", True),
        ({"code": "insufficient_quota", "message": "x"}, "usage_limit_exceeded", False),
        ({"code": "invalid_prompt", "message": "x"}, "invalid_request", False),
        ({"code": "cyber_policy", "message": "x"}, "cyber_policy", False),
        ({"code": 502, "message": "x"}, "server_error", True),
        ({"code": "429", "message": "x"}, "rate_limit_exceeded", True),
        ({"type": "invalid_request_error", "message": "x"}, "invalid_request", False),
        ({"type": "overloaded_error", "message": "x"}, "server_overloaded", True),
        ({"message": "x"}, "server_error", True),
        ("something broke", "server_error", True),
        (None, "server_error", True),
        ({"type": "error", "error": {"code": "server_is_overloaded"}}, "server_overloaded", True),
    ],
)
def test_errors_inside_a_stream_use_the_same_table(error: Any, code: str, retryable: bool) -> None:
    made = faults.reported(PROVIDER, error)
    assert (made.code, made.retryable) == (code, retryable)


def test_every_code_of_the_table_is_lower_case_and_known_once() -> None:
    names = [name for _, text in faults._NAMES for name in text.split()]
    assert sorted(set(names)) == sorted(names)
    assert all(name == name.lower() for name in names)


# ---- when to come back -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "2"}, 2.0),
        ({"retry_after": "0.5"}, 0.5),
        ({"retry_after_ms": "1500", "retry_after": "9"}, 1.5),
        ({"retry_after_ms": "soon", "retry_after": "9"}, 9.0),
        ({"retry_after": "-3"}, 0.0),
        ({"retry_after": "later"}, None),
        ({"retry_after": "inf"}, None),
        ({"retry_after": "nan"}, None),
        ({}, None),
    ],
)
def test_retry_after_in_seconds(headers: dict[str, str], seconds: float | None) -> None:
    assert refused(429, openai(), **headers).retry_after == seconds


def test_retry_after_as_a_date() -> None:
    soon = email.utils.formatdate(time.time() + 60, usegmt=True)
    assert retry_after({"retry-after": soon}) == pytest.approx(60, abs=2)
    assert retry_after({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0.0


@pytest.mark.parametrize(
    ("message", "seconds"),
    [
        ("Rate limit reached. Please try again in 20s.", 20.0),
        ("Please try again in 1.25s. Visit the page.", 1.25),
        ("Please try again in 340ms.", 0.34),
        ("Please try again in 6m0s.", 360.0),
        ("Please try again in 1h2m3s.", 3723.0),
        ("Please try again in a while.", None),
    ],
)
def test_retry_after_in_words(message: str, seconds: float | None) -> None:
    assert refused(429, openai(message)).retry_after == seconds


def test_a_provider_that_says_do_not_retry_is_believed_unless_it_names_a_time() -> None:
    assert not refused(500, openai(), x_should_retry="false").retryable
    assert refused(429, openai(), x_should_retry="false", retry_after="5").retryable


# ---- words -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "Incorrect API key provided: sk-proj-abcdefghijklmnop.",
        "Incorrect API key provided: super-secret.",
        "header Authorization: Bearer abc.def-123 is wrong",
        '{"api_key": "0123456789"}',
        "bad key AIzaSyA0123456789abcdefghijklmnopqrstuv",
        "token=eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc",
        "gate open-sesame refused",
        "key 0123456789abcdef0123456789abcdef is not valid",
    ],
)
def test_nothing_like_a_key_is_shown(text: str) -> None:
    shown = refused(401, openai(text)).message
    assert MASK in shown
    for secret in re.findall(
        r"sk-proj\S+|super-secret|abc\.def-123|0123456789\w*|AIza\w+|eyJ\S+|open-sesame", text
    ):
        assert secret.rstrip('."}') not in shown


@pytest.mark.parametrize(
    "text",
    ["See request req_0123456789abcdef0123456789abcdef.", "max_tokens: 5 is too low", "Unknown token: <eos>"],
)
def test_ordinary_words_stay(text: str) -> None:
    assert clean(PROVIDER, text) == text


def test_a_message_is_one_bounded_line() -> None:
    error = refused(500, {"error": {"message": "a\x00b\r\n\tc\x1b[31m" + "long " * 1000}})
    assert "\n" not in error.message
    assert not re.search(r"[\x00-\x1f\x7f-\x9f]", error.message)
    assert len(error.message) < 400
    assert error.message.endswith("…")


def test_a_web_page_is_not_shown() -> None:
    assert "<html" not in refused(502, b"<!DOCTYPE html><html><body>oops</body></html>").message


def test_the_parameter_is_named() -> None:
    body = {"error": {"message": "Bad value.", "param": "tools[0].name"}}
    assert refused(400, body).message.endswith("Bad value. (param: tools[0].name)")


# ---- connections -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code", "retryable"),
    [
        (aiohttp.ConnectionTimeoutError(), "connection_failed", True),
        (aiohttp.SocketTimeoutError(), "request_timeout", True),
        (TimeoutError(), "request_timeout", True),
        (aiohttp.ServerDisconnectedError(), "connection_failed", True),
        (aiohttp.ClientPayloadError(), "connection_failed", True),
        (ConnectionResetError(), "connection_failed", True),
        (aiohttp.InvalidURL("nonsense"), "invalid_request", False),
    ],
)
def test_connections_fail_in_two_ways(error: Exception, code: str, retryable: bool) -> None:
    made = faults.broken(PROVIDER, error)
    assert (made.code, made.retryable) == (code, retryable)
    assert '"acme"' in made.message


def test_the_longest_silence_is_told() -> None:
    assert "600 s" in faults.broken(PROVIDER, TimeoutError()).message
