"""What Google's errors mean."""

from __future__ import annotations

import json
from typing import Any

import pytest

from perdure.config.settings import ProviderSettings
from perdure.models import faults

PROVIDER = ProviderSettings.model_validate(
    {"name": "g", "protocol": "gemini", "base_url": "http://127.0.0.1:9/v1beta", "api_key": "AIzaSecretKey"}
)
INFO = "type.googleapis.com/google.rpc.ErrorInfo"
QUOTA = "type.googleapis.com/google.rpc.QuotaFailure"
RETRY = "type.googleapis.com/google.rpc.RetryInfo"


def error(code: int, message: str, status: str, *details: dict[str, Any]) -> dict[str, Any]:
    return {
        "error": {"code": code, "message": message, "status": status}
        | ({"details": [*details]} if details else {})
    }


def info(reason: str) -> dict[str, Any]:
    return {"@type": INFO, "reason": reason, "domain": "googleapis.com", "metadata": {"service": "x"}}


def quota(name: str) -> dict[str, Any]:
    return {"@type": QUOTA, "violations": [{"quotaMetric": "m", "quotaId": name, "quotaValue": "20"}]}


SPENT = (
    "You exceeded your current quota, please check your plan and billing details. For more information on"
    " this error, head to: https://ai.google.dev/gemini-api/docs/rate-limits.\n* Quota exceeded for metric: m"
)
CASES: list[tuple[dict[str, Any], str, bool, float | None]] = [
    (
        error(
            400,
            "API key not valid. Please pass a valid API key.",
            "INVALID_ARGUMENT",
            info("API_KEY_INVALID"),
        ),
        "authentication_error",
        False,
        None,
    ),
    (
        error(403, "Method doesn't allow unregistered callers.", "PERMISSION_DENIED"),
        "authentication_error",
        False,
        None,
    ),
    (
        error(403, "The API is disabled.", "PERMISSION_DENIED", info("SERVICE_DISABLED")),
        "authentication_error",
        False,
        None,
    ),
    (
        error(403, "Billing is off.", "PERMISSION_DENIED", info("BILLING_DISABLED")),
        "billing_not_active",
        False,
        None,
    ),
    (
        error(404, "models/gemini-9 is not found for API version v1beta", "NOT_FOUND"),
        "resource_not_found",
        False,
        None,
    ),
    (
        error(
            400,
            "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
            "INVALID_ARGUMENT",
        ),
        "context_length_exceeded",
        False,
        None,
    ),
    (error(400, "Request contains an invalid argument.", "INVALID_ARGUMENT"), "invalid_request", False, None),
    (
        error(400, "User location is not supported for the API use.", "FAILED_PRECONDITION"),
        "invalid_request",
        False,
        None,
    ),
    (
        error(
            400,
            "Gemini API free tier is not available in your country. Please enable billing on your project.",
            "FAILED_PRECONDITION",
        ),
        "billing_not_active",
        False,
        None,
    ),
    (
        error(
            429,
            SPENT,
            "RESOURCE_EXHAUSTED",
            quota("GenerateRequestsPerMinutePerProjectPerModel-FreeTier"),
            {"@type": RETRY, "retryDelay": "26s"},
        ),
        "rate_limit_exceeded",
        True,
        26.0,
    ),
    (
        error(429, SPENT + "\nPlease retry in 36.5s.", "RESOURCE_EXHAUSTED"),
        "rate_limit_exceeded",
        True,
        36.5,
    ),
    (
        error(
            429,
            SPENT,
            "RESOURCE_EXHAUSTED",
            quota("GenerateRequestsPerDayPerProjectPerModel-FreeTier"),
            {"@type": RETRY, "retryDelay": "36s"},
        ),
        "usage_limit_exceeded",
        False,
        36.0,
    ),
    (error(429, SPENT, "RESOURCE_EXHAUSTED"), "usage_limit_exceeded", False, None),
    (error(429, "Resource has been exhausted.", "RESOURCE_EXHAUSTED"), "rate_limit_exceeded", True, None),
    (error(500, "An internal error has occurred.", "INTERNAL"), "server_error", True, None),
    (
        error(503, "The model is overloaded. Please try again later.", "UNAVAILABLE"),
        "server_overloaded",
        True,
        None,
    ),
    (error(504, "The request timed out.", "DEADLINE_EXCEEDED"), "request_timeout", True, None),
]


@pytest.mark.parametrize(("body", "code", "retryable", "wait"), CASES)
@pytest.mark.parametrize("listed", [False, True])
def test_an_error_of_google(
    body: dict[str, Any], code: str, retryable: bool, wait: float | None, listed: bool
) -> None:
    sent = json.dumps([body] if listed else body).encode()
    made = faults.refused(PROVIDER, body["error"]["code"], {}, sent)
    assert (made.code, made.retryable, made.retry_after) == (code, retryable, wait)
    assert body["error"]["message"].split(".")[0][:60] in made.message


@pytest.mark.parametrize(("body", "code", "retryable", "wait"), CASES)
def test_the_same_error_inside_a_stream(
    body: dict[str, Any], code: str, retryable: bool, wait: float | None
) -> None:
    made = faults.reported(PROVIDER, body)
    assert (made.code, made.retryable, made.retry_after) == (code, retryable, wait)


def test_too_many_bytes_are_told_by_the_status_that_others_use() -> None:
    body = error(400, "Request payload size exceeds the limit: 20971520 bytes.", "INVALID_ARGUMENT")
    made = faults.refused(PROVIDER, 400, {}, json.dumps(body).encode())
    assert (made.code, made.status) == ("invalid_request", 413)


def test_the_key_is_never_repeated() -> None:
    body = error(400, "API key AIzaSecretKey not valid: AIzaSyB0123456789abcdefghijklmno", "INVALID_ARGUMENT")
    message = faults.refused(PROVIDER, 400, {}, json.dumps(body).encode()).message
    assert "Secret" not in message
    assert "AIzaSy" not in message
