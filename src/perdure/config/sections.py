"""The tables of the settings file, except the providers. Times are seconds, sizes are bytes."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationInfo, field_validator

from perdure.config.problems import Unit

_KEY = re.compile(r"[\x21-\x7e]+")
_SIZE = re.compile(r"(\d+)\s*(B|KiB|MiB|GiB)?")
_SCALE = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def parse_size(value: Any) -> Any:
    """`"8 MiB"` as bytes; anything that is no such text is returned unchanged."""
    if isinstance(value, str) and (found := _SIZE.fullmatch(value.strip())):
        return int(found[1]) * _SCALE[found[2] or "B"]
    return value


Seconds = Annotated[float, Unit("seconds")]
Bytes = Annotated[int, BeforeValidator(parse_size), Unit("bytes")]
Most = int | None
Amount = float | None


class Section(BaseModel):
    """A frozen table that knows all of its keys."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
    )


def check_http_url(value: str) -> str:
    """An http(s) URL without a trailing slash; raises ValueError for anything else."""
    try:
        url = urlsplit(value)
        usable = url.scheme in ("http", "https") and bool(url.hostname) and (url.port is None or url.port > 0)
    except ValueError:
        usable = False
    if not usable or url.username is not None or url.query or url.fragment or any(c.isspace() for c in value):
        raise ValueError(
            "is not usable; allowed: a URL that begins with http:// or https://,"
            " without user name, query or fragment"
        )
    return value.rstrip("/")


def check_postgres_url(value: str) -> str:
    """A PostgreSQL URL with a database; raises ValueError, which does not repeat it, for anything else."""
    try:
        url = urlsplit(value)
        usable = bool(url.path.strip("/")) and (url.port is None or url.port > 0)
    except ValueError:
        usable = False
    if not usable or url.fragment or any(c.isspace() for c in value) or "password=" in url.query:
        raise ValueError(
            "is not usable; allowed: postgresql://<user>:<password>@<host>:<port>/<database>, with a"
            " percent-encoded password, and driver options such as ?sslmode=verify-full"
        )
    return value


def check_bus_urls(value: str) -> str:
    """URLs of NATS servers, with commas between them; raises ValueError, which does not repeat them."""
    try:
        urls = [urlsplit(text.strip()) for text in value.split(",")]
        usable = all(
            url.scheme in ("nats", "tls") and url.hostname and (url.port is None or url.port > 0)
            for url in urls
        )
    except ValueError:
        usable = False
    if not usable or any(url.path.strip("/") or url.query or url.fragment for url in urls):
        raise ValueError(
            "is not usable; allowed: nats://<user>:<password>@<host>:<port> or tls://…, several of them with"
            " commas between; unset for the database's own notifications"
        )
    return value


def check_key(value: SecretStr) -> SecretStr:
    """A key that fits in a header; raises ValueError for one that does not, without repeating it."""
    if not _KEY.fullmatch(value.get_secret_value()):
        raise ValueError("is not usable; allowed: printable ASCII characters without spaces or line breaks")
    return value


class ServerSettings(Section):
    """`[server]`: what clients connect to."""

    host: str = Field("127.0.0.1", min_length=1)
    """Address to listen on. Anything but a loopback address needs an API key."""
    port: int = Field(8700, ge=0, le=65535)
    """TCP port; 0 picks a free one."""
    keepalive: Seconds = Field(15.0, gt=0, le=3600)
    """Time between comment frames on a silent event stream."""
    obfuscation: bool = True
    """Pad streamed deltas against size analysis where a client asks for it or leaves it open."""
    require_beta_header: bool = True
    """Refuse requests without `OpenAI-Beta: agents=v1`."""
    stream_buffer: Bytes = Field(8 << 20, ge=64 << 10, le=1 << 30)
    """Most bytes held for one event stream whose reader is slow."""
    max_body: Bytes = Field(32 << 20, ge=1 << 10, le=1 << 30)
    """Largest request body."""
    base_instructions: str | None = None
    """Text put before every agent's own instructions; unset means the short built-in text, "" means none."""
    public_url: str | None = None
    """Address under which clients reach this server, when it is not the one it listens on."""
    shutdown_grace: Seconds = Field(10.0, ge=0, le=3600)
    """Longest wait for open requests when the server stops."""
    metrics: Literal["key", "open", "off"] = "key"
    """Who reads `/metrics`: keys with the scope `api.metrics.read`, everybody, or nobody."""

    @field_validator("public_url")
    @classmethod
    def _check_public_url(cls, value: str | None) -> str | None:
        return None if value is None else check_http_url(value)


class WorkSettings(Section):
    """`[work]`: how much runs at once, and how long."""

    lease: Seconds = Field(10.0, ge=0.1, le=3600)
    """Ownership of a session expires this long after its owner's last heartbeat."""
    workers: int = Field(1, ge=0, le=256)
    """Processes of `perdure serve` that run sessions; 0 leaves them to `perdure worker`. SQLite takes 1."""
    model_concurrency: int = Field(64, ge=1, le=100_000)
    """Most model calls of this process at once."""
    session_concurrency: int = Field(1000, ge=1, le=1_000_000)
    """Most sessions this process advances at once."""
    drain: Seconds = Field(10.0, ge=0, le=3600)
    """Longest wait for running steps when the process stops; what is left goes on after the next start."""
    turn_timeout: Seconds = Field(3600.0, gt=0, le=31_536_000)
    """Longest active time of a turn; waiting for the application does not count."""
    event_retention: Annotated[float | None, Unit("seconds")] = Field(2_592_000.0, gt=0, le=315_360_000)
    """How long stored events can be replayed; unset means as long as their session."""
    call_timeout: Annotated[float | None, Unit("seconds")] = Field(None, gt=0, le=31_536_000)
    """Longest wait for the result of a function call; unset means for ever."""
    metrics_host: str = Field("127.0.0.1", min_length=1)
    """Address on which a worker answers scrapes."""
    metrics_port: int | None = Field(None, ge=0, le=65535)
    """TCP port on which a worker answers scrapes, without a key; unset means none.

    The processes of a server with several workers take this port and those behind it.
    """


class RetrySettings(Section):
    """`[retry]`: model calls that failed for a reason that may pass."""

    attempts: int = Field(4, ge=1, le=100)
    """Most attempts of one model call, the first included."""
    base_delay: Seconds = Field(0.5, ge=0, le=3600)
    """Wait before the second attempt; it doubles with each further one."""
    max_delay: Seconds = Field(30.0, ge=0, le=3600, validate_default=True)
    """Longest wait between two attempts."""
    give_up_after: Seconds = Field(300.0, ge=0, le=86_400)
    """Longest total wait inside one step."""

    @field_validator("max_delay")
    @classmethod
    def _check_order(cls, value: float, info: ValidationInfo) -> float:
        base = info.data.get("base_delay", 0.0)
        if value < base:
            raise ValueError(f"{value} is below base_delay; allowed: a number of seconds from {base}")
        return value


class LimitSettings(Section):
    """`[limits]`: ceilings that refuse the next call."""

    model_calls_per_turn: Most = Field(100, ge=1, le=1_000_000_000)
    """Most model calls of one turn, repeated ones included."""
    model_calls_per_session: Most = Field(None, ge=1, le=1_000_000_000)
    """Most model calls of one session."""
    tool_calls_per_turn: Most = Field(500, ge=1, le=1_000_000_000)
    """Most tool calls of one turn."""
    tool_calls_per_session: Most = Field(None, ge=1, le=1_000_000_000)
    """Most tool calls of one session."""
    uncached_input_tokens_per_turn: Most = Field(10_000_000, ge=1, le=1_000_000_000_000)
    """Most input tokens of one turn that no cache of the provider had."""
    uncached_input_tokens_per_session: Most = Field(None, ge=1, le=1_000_000_000_000)
    """Most input tokens of one session that no cache of the provider had."""
    total_tokens_per_turn: Most = Field(None, ge=1, le=1_000_000_000_000)
    """Most tokens of one turn, input and output, cached or not."""
    total_tokens_per_session: Most = Field(None, ge=1, le=1_000_000_000_000)
    """Most tokens of one session, input and output, cached or not."""
    spend_per_turn: Amount = Field(None, gt=0, le=1_000_000_000)
    """Most money of one turn, in the currency of the prices."""
    spend_per_session: Amount = Field(None, gt=0, le=1_000_000_000)
    """Most money of one session, in the currency of the prices."""
    active_seconds_per_turn: Amount = Field(None, gt=0, le=1_000_000_000)
    """Longest active time of one turn before the last model call; `work.turn_timeout` ends a turn in it."""
    active_seconds_per_session: Amount = Field(None, gt=0, le=1_000_000_000)
    """Longest active time of one session; waiting for the application does not count."""
    repeated_calls: Most = Field(10, ge=1, le=1_000_000)
    """Most calls in a row with the same tool, arguments and result."""
    repeated_calls_any_result: Most = Field(30, ge=1, le=1_000_000)
    """Most calls in a row with the same tool and arguments, whatever their results."""
    repaired_calls: int = Field(3, ge=0, le=1000)
    """Bad calls of one tool in a row that the server answers itself before a schema mismatch is passed on."""
    validate_arguments: bool = True
    """Check a call's arguments against the tool's schema."""
    output_repairs: int = Field(2, ge=0, le=1000)
    """Repeats of an answer that does not match the agent's output schema."""
    model_result_bytes: Bytes = Field(256 << 10, ge=1 << 10, le=1 << 30)
    """How much of one tool result the model sees."""


class ContextSettings(Section):
    """`[context]`: what a model is shown of a long history. Sizes in tokens unless they are bytes."""

    trigger: float = Field(0.8, ge=0.1, le=0.95)
    """Part of a model's window that a request may fill before the history is compacted."""
    keep: float = Field(0.25, ge=0.0, le=0.8)
    """Part of the window that the newest steps may fill and stay as they are when it is."""
    default_window: int = Field(128_000, ge=1024, le=100_000_000)
    """Window of a model of which none is known, until a refused request tells."""
    summary_model: str | None = Field(None, min_length=1)
    """Model that writes summaries; unset means the session's own."""
    summary_tokens: int = Field(4000, ge=100, le=100_000)
    """Longest summary; never more than a tenth of the window."""
    pin_tokens: int = Field(1000, ge=0, le=100_000)
    """Room for facts that were found by rule; those that the application pins are always shown."""
    pin_paths: dict[str, str] = Field(default_factory=dict)
    """JSONPath expressions by name: what they find in results of functions is pinned in every session."""
    images: int = Field(20, ge=0, le=10_000)
    """Most images that are shown; older ones become a line of text."""
    image_bytes: Bytes = Field(8 << 20, ge=0, le=1 << 30)
    """Most bytes of images that are shown, as they are sent."""


class SubagentSettings(Section):
    """`[subagents]`: agents that agents create, where `multi_agent` is enabled."""

    depth: int = Field(1, ge=1, le=16)
    """Generations of subagents below the root agent; with 1, subagents create none of their own."""
    per_session: int = Field(100, ge=1, le=1_000_000)
    """Most subagents that one session creates in its life, closed ones included."""
    wait: Seconds = Field(300.0, gt=0, le=86_400)
    """How long an agent waits for subagents when its model does not say."""
    longest_wait: Seconds = Field(3600.0, gt=0, le=604_800)
    """Longest time a model may wait for subagents with one call."""
    reports_wake: bool = False
    """Begin a turn of an idle root agent when a subagent has ended one; otherwise its next turn reads it."""


class TelemetrySettings(Section):
    """`[telemetry]`: traces of what agents do, without any content."""

    traces: bool = False
    """Send OpenTelemetry spans, where the `OTEL_*` variables say; needs `perdure[telemetry]`."""


class LogSettings(Section):
    """`[log]`: what is written to standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Least serious message that is written."""
    format: Literal["auto", "json", "text"] = "auto"
    """`auto` writes JSON lines unless standard error is a terminal."""
