"""Log lines on standard error, JSON or text, each with the ids of its request and session."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from perdure.config.sections import LogSettings

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)
session_id: ContextVar[str | None] = ContextVar("session_id", default=None)

Redact = Callable[[str], str]

# What every record has; anything else came in through `extra=`.
_OWN_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}

_VISIBLE = {code: f"\\x{code:02x}" for code in (*range(32), 127, *range(128, 160))} | {9: "\t"}


@contextmanager
def log_context(*, request: str | None = None, session: str | None = None) -> Iterator[None]:
    """Lines written inside, also by tasks started inside, carry these ids; None leaves the outer one."""
    tokens = [
        (variable, variable.set(value))
        for variable, value in ((request_id, request), (session_id, session))
        if value is not None
    ]
    try:
        yield
    finally:
        for variable, token in reversed(tokens):
            variable.reset(token)


class LineFormatter(logging.Formatter):
    """One record as one JSON line, or as text for a terminal, with every text redacted."""

    def __init__(self, style: Literal["json", "text"], redact: Redact) -> None:
        super().__init__()
        self._json = style == "json"
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        """The finished line without its line break; the text form may span lines after an exception."""
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._redact(record.getMessage()),
        }
        ids = {"request_id": request_id.get(), "session_id": session_id.get()}
        fields.update({name: value for name, value in ids.items() if value is not None})
        for name, value in vars(record).items():
            if name not in _OWN_FIELDS and not name.startswith("_"):
                fields[name] = redacted(value, self._redact)
        failure = self._failure(record)
        if self._json:
            if failure:
                fields["exception"] = failure
            return json.dumps(fields, ensure_ascii=False, default=str)
        return _text_line(fields) + (f"\n{failure}" if failure else "")

    def _failure(self, record: logging.LogRecord) -> str:
        parts = [self.formatException(record.exc_info)] if record.exc_info else []
        if record.stack_info:
            parts.append(record.stack_info)
        return self._redact("\n".join(parts))


def redacted(value: object, redact: Redact) -> Any:
    """A JSON-like value with every text in it redacted; other objects become their redacted `str`."""
    match value:
        case bool() | int() | float() | None:
            return value
        case Mapping():
            return {redact(str(key)): redacted(inner, redact) for key, inner in value.items()}
        case list() | tuple() | set() | frozenset():
            return [redacted(inner, redact) for inner in value]
        case _:
            return redact(str(value))


class StderrHandler(logging.StreamHandler[TextIO]):
    """The one handler that `configure_logging` installs and replaces."""


def configure_logging(
    settings: LogSettings, redact: Redact, *, stream: TextIO | None = None, capture_warnings: bool = True
) -> None:
    """Send all log records of the process to standard error.

    Args:
        settings: level and format; `auto` means JSON lines unless the stream is a terminal.
        redact: the choke point for secrets, normally `Redactor.redact`.
        stream: where to write instead of standard error.
        capture_warnings: also log what `warnings.warn` says.

    May be called again; the last call counts.
    """
    stream = sys.stderr if stream is None else stream
    by_stream: Literal["json", "text"] = "text" if stream.isatty() else "json"
    style = by_stream if settings.format == "auto" else settings.format
    handler = StderrHandler(stream)
    handler.setFormatter(LineFormatter(style, redact))
    root = logging.getLogger()
    for installed in [one for one in root.handlers if isinstance(one, StderrHandler)]:
        root.removeHandler(installed)
    root.addHandler(handler)
    root.setLevel(settings.level.upper())
    logging.captureWarnings(capture_warnings)


def _text_line(fields: Mapping[str, Any]) -> str:
    head = ("time", "level", "logger", "message")
    rest = " ".join(f"{name}={value}" for name, value in fields.items() if name not in head)
    # A message may repeat what a stranger sent: no forged lines, no terminal sequences.
    line = f"{fields['time'][11:23]} {fields['level']:<7} {fields['logger']}: {fields['message']}"
    return (f"{line}  {rest}" if rest else line).translate(_VISIBLE)
