"""What a provider's failure means: one table from its statuses, codes and words to turn error codes.

Every model wire raises the `ModelError`s made here, so a failure reads the same whoever answered.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import aiohttp

from perdure.config.settings import ProviderSettings
from perdure.models.errors import ModelError
from perdure.models.fault_text import Report, clean, name_of, read_report, retry_after
from perdure.wire.turns import TurnErrorCode


class Fault(NamedTuple):
    code: TurnErrorCode
    retryable: bool


CONTEXT = Fault("context_length_exceeded", False)
INVALID = Fault("invalid_request", False)
CREDIT = Fault("credit_balance_exhausted", False)
SERVER = Fault("server_error", True)
CONNECTION = Fault("connection_failed", True)

STATUSES: Mapping[int, Fault] = {
    400: INVALID,
    401: Fault("authentication_error", False),
    402: CREDIT,
    403: Fault("authentication_error", False),
    404: Fault("resource_not_found", False),
    408: Fault("request_timeout", True),
    409: SERVER,
    410: Fault("resource_not_found", False),
    # Too many bytes, which is not too many tokens: the caller sees `status == 413` and may drop images.
    413: INVALID,
    425: Fault("server_overloaded", True),
    429: Fault("rate_limit_exceeded", True),
    503: Fault("server_overloaded", True),
    529: Fault("server_overloaded", True),
}

# A provider's own code, type or status word, in lower case. They win over the HTTP status.
_NAMES: tuple[tuple[Fault, str], ...] = (
    (
        CONTEXT,
        "context_length_exceeded context_window_exceeded model_context_window_exceeded"
        " exceed_context_size_error context_length_error",
    ),
    (Fault("max_output_tokens", False), "max_output_tokens max_tokens_exceeded"),
    (
        Fault("usage_limit_exceeded", False),
        "insufficient_quota usage_limit_exceeded quota_exceeded daily_quota_exceeded",
    ),
    (Fault("project_spend_limit_exceeded", False), "project_spend_limit_exceeded"),
    (
        Fault("organization_spend_limit_exceeded", False),
        "organization_spend_limit_exceeded billing_hard_limit_reached enforced_spend_limit_reached"
        " contract_spend_limit_reached",
    ),
    (Fault("organization_usage_limit_exceeded", False), "organization_usage_limit_exceeded"),
    (
        Fault("billing_not_active", False),
        "billing_not_active account_not_active billing_error billing_disabled",
    ),
    (CREDIT, "credit_balance_exhausted insufficient_credits insufficient_balance payment_required"),
    (
        Fault("rate_limit_exceeded", True),
        "rate_limit_exceeded rate_limit_error rate_limit_reached rate_limited too_many_requests"
        " resource_exhausted",
    ),
    # What the flex tier answers when it has no capacity left.
    (Fault("flex_unavailable", True), "flex_unavailable resource_unavailable"),
    (
        Fault("server_overloaded", True),
        "server_overloaded server_is_overloaded overloaded overloaded_error engine_overloaded"
        " engine_overloaded_error model_overloaded service_unavailable unavailable slow_down"
        " insufficient_system_resource capacity_exceeded",
    ),
    (Fault("cyber_policy", False), "cyber_policy cyber_policy_violation"),
    (Fault("misalignment_policy_violation", False), "misalignment_policy_violation"),
    (
        INVALID,
        "content_filter content_policy_violation image_content_policy_violation bio_policy"
        " safety invalid_prompt data_residency_mismatch invalid_image image_parse_error"
        " unsupported_parameter unsupported_value",
    ),
    (
        Fault("authentication_error", False),
        "invalid_api_key authentication_error permission_error permission_denied unauthenticated"
        " account_deactivated unauthorized forbidden api_key_invalid api_key_service_blocked"
        " consumer_suspended service_disabled organization_on_hold",
    ),
    (
        Fault("resource_not_found", False),
        "model_not_found not_found_error not_found deploymentnotfound deployment_not_found",
    ),
    (Fault("request_timeout", True), "request_timeout timeout timeout_error deadline_exceeded"),
    (
        SERVER,
        "server_error internal_error internal_server_error internal vector_store_timeout"
        " processing_error upstream_error",
    ),
    (CONNECTION, "connection_failed network_error connection_error"),
)
NAMES: Mapping[str, Fault] = {name: fault for fault, names in _NAMES for name in names.split()}

# Too general to win over an HTTP status, but all there is inside a stream.
GENERAL_NAMES: Mapping[str, Fault] = {
    "invalid_request_error": INVALID,
    "invalid_request": INVALID,
    "invalid_argument": INVALID,
    "bad_request": INVALID,
    "request_too_large": INVALID,
    "failed_precondition": INVALID,
    "api_error": SERVER,
}

# Providers without codes say it in words; these win over every code but that of a refused key.
_OVERFLOW = re.compile(
    r"maximum context length|context[ _-]?(?:length|window|size|limit)\b.{0,80}?\b(?:exce|large|small|long)"
    r"|(?:exce|larg|long|great)\w*\b.{0,80}?\bcontext[ _-]?(?:length|window|size|limit)"
    r"|(?:prompt|input) is too long|too large for model with|maximum prompt length"
    r"|input token count .{0,40}exceeds|exceeds the maximum number of (?:input )?tokens"
    r"|reduce the length of (?:the|your) (?:messages|prompt|input|text)"
    # One request above the per-minute allowance: waiting never helps, a shorter request does.
    r"|request too large for .{0,200}tokens per min",
    re.IGNORECASE | re.DOTALL,
)
_WORDS: tuple[tuple[re.Pattern[str], Fault], ...] = (
    (re.compile(r"credit balance is too low|insufficient (?:credits?|balance|funds)", re.IGNORECASE), CREDIT),
    (
        re.compile(r"reached your specified (?:\w+ )?(?:api )?usage limits", re.IGNORECASE),
        Fault("organization_spend_limit_exceeded", False),
    ),
    (
        re.compile(r"exceeded your current quota|quota (?:has been )?exceeded", re.IGNORECASE),
        Fault("usage_limit_exceeded", False),
    ),
    (
        re.compile(r"(?:input|prompt|content) (?:was|has been|is) flagged|content management policy", re.I),
        INVALID,
    ),
    (
        re.compile(r"enable billing|billing (?:account|to be enabled)|free tier is not available", re.I),
        Fault("billing_not_active", False),
    ),
    (re.compile(r"\b(?:is )?(?:currently )?overloaded\b", re.I), Fault("server_overloaded", True)),
)


# What some providers answer with status 400.
_TOO_MANY_BYTES = re.compile(r"(?:request )?payload size exceeds the limit", re.IGNORECASE)


def classify(status: int | None, names: Iterable[str], text: str, *, told_to_wait: bool = False) -> Fault:
    """Find the fault behind an HTTP status (None inside a stream), provider codes and a message.

    `told_to_wait` says that the provider named a time to retry, so a quota is a rate, not an end.
    """
    if status not in (401, 404) and _OVERFLOW.search(text):
        return CONTEXT
    known = [fault for name in names if (fault := NAMES.get(name)) is not None]
    words = next((fault for pattern, fault in _WORDS if pattern.search(text)), None)
    ends_it = words is not None and not words.retryable
    if known and not (ends_it and known[0] == STATUSES[429] and not told_to_wait):
        return known[0]
    if words is not None and status not in (401, 404) and not (ends_it and told_to_wait):
        return words
    if status is not None:
        return _by_status(status)
    return next((fault for name in names if (fault := GENERAL_NAMES.get(name)) is not None), SERVER)


def _by_status(status: int) -> Fault:
    if status in STATUSES:
        return STATUSES[status]
    return SERVER if status >= 500 else INVALID


def refused(provider: ProviderSettings, status: int, headers: Mapping[str, str], body: bytes) -> ModelError:
    """The error for an HTTP answer that is no success; `body` may be of any form or cut short."""
    report = read_report(body)
    wait = retry_after(headers, report)
    if status == 400 and _TOO_MANY_BYTES.search(report.text):
        status = 413
    fault = classify(status, report.names, report.text, told_to_wait=wait is not None)
    if wait is None and headers.get("x-should-retry") == "false":
        fault = fault._replace(retryable=False)
    return _error(provider, fault, f"answered {status}", report, status=status, wait=wait)


def reported(provider: ProviderSettings, error: Any) -> ModelError:
    """The error for a failure told inside a stream; `error` is the provider's JSON value."""
    report = read_report(error)
    wait = retry_after({}, report)
    fault = classify(report.status, report.names, report.text, told_to_wait=wait is not None)
    return _error(provider, fault, "broke off its answer", report, status=report.status, wait=wait)


def broken(provider: ProviderSettings, error: BaseException) -> ModelError:
    """The error for a failed or silent connection."""
    who = name_of(provider)
    match error:
        case aiohttp.ConnectionTimeoutError():
            return _made(
                CONNECTION, f"{who} did not accept a connection within {provider.connect_timeout:g} s"
            )
        case TimeoutError():
            return _made(Fault("request_timeout", True), f"{who} sent nothing for {provider.timeout:g} s")
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientSSLError():
            return _made(
                CONNECTION._replace(retryable=False),
                f"{who} could not be reached over TLS: {clean(provider, str(error.os_error or error))}",
            )
        case aiohttp.InvalidURL():
            return _made(INVALID, f"{who} has an address that is no URL: check base_url")
        case aiohttp.ClientHttpProxyError():
            return _made(CONNECTION, f"{who} could not be reached: the proxy answered {error.status}")
        case aiohttp.ClientConnectorDNSError():
            return _made(CONNECTION, f"{who} could not be reached: its host name {error.host} was not found")
        case aiohttp.ClientConnectorError():
            reason = clean(provider, error.os_error.strerror or str(error.os_error))
            return _made(
                CONNECTION,
                f"{who} could not be reached at {error.host}:{error.port}: {reason or 'no reason'}",
            )
        case ValueError():
            return _made(INVALID, f"{who} could not be called: {clean(provider, str(error))}")
    return _made(CONNECTION, f"{who} closed the connection before its answer was complete")


def cut(provider: ProviderSettings) -> ModelError:
    """The error for a stream that ended without its closing event."""
    return broken(provider, EOFError())


def truncated(provider: ProviderSettings) -> ModelError:
    """The error for an answer that reached the limit of output tokens."""
    return ModelError(
        "max_output_tokens",
        f"The answer of {name_of(provider, lower=True)} reached its limit of output tokens",
    )


def filtered(provider: ProviderSettings, reason: str | None = None) -> ModelError:
    """The error for an answer that the provider's content filter removed; `reason` is its own word."""
    named = f" ({clean(provider, reason, limit=60)})" if reason else ""
    return _made(INVALID, f"{name_of(provider)} withheld the answer: its content filter was triggered{named}")


def garbled(provider: ProviderSettings, what: str, *, retryable: bool = True) -> ModelError:
    """The error for an answer that breaks the provider's own protocol; `what` ends the sentence."""
    return _made(SERVER._replace(retryable=retryable), f"{name_of(provider)} {what}")


def misaddressed(provider: ProviderSettings, what: str) -> ModelError:
    """The error for an address that is not the API's; `what` ends the sentence."""
    return _made(INVALID, f"{name_of(provider)} {what}: check base_url")


def _made(fault: Fault, message: str) -> ModelError:
    return ModelError(fault.code, message, retryable=fault.retryable)


def _error(
    provider: ProviderSettings,
    fault: Fault,
    verb: str,
    report: Report,
    *,
    status: int | None,
    wait: float | None,
) -> ModelError:
    text = clean(provider, report.message)
    param = f" (param: {clean(provider, report.param, limit=60)})" if report.param else ""
    return ModelError(
        fault.code,
        f"{name_of(provider)} {verb}: {text or fault.code}{param}",
        retryable=fault.retryable,
        retry_after=wait,
        status=status,
    )
