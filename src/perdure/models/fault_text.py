"""Reading a provider's error of any shape, and making its words safe to show."""

from __future__ import annotations

import email.utils
import math
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from perdure.config.settings import ProviderSettings
from perdure.models.jsontext import decode

MAX_TEXT = 300


@dataclass(frozen=True, slots=True)
class Report:
    """`message` is for people; `text` is everything said, for matching; `names` are codes in lower case."""

    message: str = ""
    text: str = ""
    names: tuple[str, ...] = ()
    param: str | None = None
    status: int | None = None
    retry_delay: str | None = None


def read_report(error: Any) -> Report:
    """Find message, codes and parameter in an error body (bytes) or error value of any known shape."""
    if isinstance(error, bytes):
        try:
            error = decode(error)
        except ValueError:
            text = error.decode("utf-8", "replace").strip()
            return Report() if text.startswith("<") else Report(text, text)
    return _read_value(error)


def _read_value(value: Any) -> Report:
    match value:
        case str():
            return Report(value, value)
        case [first, *_]:
            return _read_value(first)
        case {"error": dict() | str() | list() as inner}:
            return _read_value(inner)
        case {"errors": [first, *_]}:
            return _read_value(first)
        case {"detail": dict() | str() | list() as inner} if "message" not in value:
            return _read_value(inner)
        case dict():
            return _read_object(value)
    return Report()


def _read_object(error: Mapping[str, Any]) -> Report:
    said = [text for key in ("message", "msg") if isinstance(text := error.get(key), str)]
    metadata = error.get("metadata")
    if isinstance(metadata, dict) and isinstance(raw := metadata.get("raw"), str):
        # A router's own message says only that its upstream failed.
        inner = read_report(raw.encode("utf-8", "replace"))
        said = [inner.message, *said] if inner.message else said
    details = error.get("details")
    codes: list[Any] = [*_reasons(details), *(error.get(key) for key in ("code", "type", "status"))]
    texts = [str(code) for code in codes if isinstance(code, int | str)]
    numbers = [int(text) for text in texts if text.isdecimal()]
    location = error.get("loc")
    param = ".".join(map(str, location)) if isinstance(location, list) else error.get("param")
    return Report(
        message=said[0] if said else "",
        text="\n".join(said),
        names=tuple(_name(text) for text in texts if not text.isdecimal()),
        param=param if isinstance(param, str) and param else None,
        status=next((number for number in numbers if 400 <= number < 600), None),
        retry_delay=next(_retry_delays(details), None),
    )


def _name(code: str) -> str:
    return code.strip().lower().replace(" ", "_").replace("-", "_")


def _reasons(details: Any) -> Iterator[str]:
    """The codes in the details of an error of Google's or Anthropic's: more precise than the rest."""
    if isinstance(details, dict) and isinstance(code := details.get("error_code"), str):
        yield code
    for detail in details if isinstance(details, list) else ():
        if not isinstance(detail, dict):
            continue
        if isinstance(reason := detail.get("reason"), str):
            yield reason
        violations = detail.get("violations")
        for violation in violations if isinstance(violations, list) else ():
            # The delay that comes along is that of a minute's quota, and does not help here.
            if isinstance(violation, dict) and "PerDay" in str(violation.get("quotaId")):
                yield "daily_quota_exceeded"


def _retry_delays(details: Any) -> Iterator[str]:
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict) and isinstance(delay := detail.get("retryDelay"), str):
            yield delay


# ---- when to come back -------------------------------------------------------------------------

_IN_WORDS = re.compile(
    r"(?:try again|retry) in (?:(?P<h>\d+)h)?(?:(?P<m>\d+)m(?!s))?"
    r"(?:(?P<s>\d+(?:\.\d+)?)s)?(?:(?P<ms>\d+(?:\.\d+)?)ms)?",
    re.IGNORECASE,
)


def retry_after(headers: Mapping[str, str], report: Report | None = None) -> float | None:
    """Seconds the provider asks to wait, from its headers (any case of name), its details or its words."""
    if (milliseconds := _seconds(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    if value := headers.get("retry-after"):
        if (seconds := _seconds(value)) is not None:
            return seconds
        if (at := _date(value)) is not None:
            return max(0.0, at - time.time())
    if report is None:
        return None
    if report.retry_delay and (seconds := _seconds(report.retry_delay.removesuffix("s"))) is not None:
        return seconds
    return _wait_in_words(report.text)


def _seconds(value: str | None) -> float | None:
    try:
        seconds = float(value) if value else math.nan
    except ValueError:
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _date(value: str) -> float | None:
    try:
        return email.utils.parsedate_to_datetime(value).timestamp()
    except (ValueError, OverflowError):
        return None


def _wait_in_words(text: str) -> float | None:
    found = _IN_WORDS.search(text)
    if found is None or not any(found.groups()):
        return None
    hours, minutes, seconds, milliseconds = (float(found[unit] or 0) for unit in ("h", "m", "s", "ms"))
    return hours * 3600 + minutes * 60 + seconds + milliseconds / 1000


# ---- words for people --------------------------------------------------------------------------

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\s]+")
_SECRET = re.compile(
    r"(?P<label>\bbearer\s+"
    r"|\b(?:api[-_ ]?key|x-api-key|access[-_ ]?token|token|secret|password|authorization)"
    r"[\"']?\s*(?:[:=]|provided:)\s*[\"']?(?:bearer\s+)?)[^\s\"',;)]{6,}"
    r"|\b(?:sk|pk|rk|gsk|xai|hf|ghp|gho|github_pat|xox[abp]|key)[-_][A-Za-z0-9_*.\-]{6,}"
    r"|\bAIza[0-9A-Za-z_\-]{20,}|\beyJ[A-Za-z0-9_\-]{10,}(?:\.[A-Za-z0-9_\-]+)*"
    # Long runs with digits and letters, but no ids that support asks for.
    r"|\b(?!(?:req|resp|msg|chatcmpl|gen|call)[-_])(?=[A-Za-z_\-+/=]*\d)(?=[\d_\-+/=]*[A-Za-z])[A-Za-z0-9_\-+/=]{32,}",
    re.IGNORECASE,
)
MASK = "[hidden]"


def clean(provider: ProviderSettings, text: str, *, limit: int = MAX_TEXT) -> str:
    """One line of at most `limit` characters without control characters or anything like a key."""
    text = text[: limit * 8]
    secrets = [provider.api_key.get_secret_value()] if provider.api_key else []
    for secret in (*secrets, *provider.headers.values()):
        if len(secret) >= 4:
            text = text.replace(secret, MASK)
    text = _SECRET.sub(lambda found: (found["label"] or "") + MASK, text)
    text = _CONTROL.sub(" ", text).strip()
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def name_of(provider: ProviderSettings, *, lower: bool = False) -> str:
    return f'{"the" if lower else "The"} model provider "{provider.name}"'
