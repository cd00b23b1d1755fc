"""What a process counts: every metric with its name, type, labels and unit, in one place.

A `Metrics` object belongs to one server or worker and has a registry of its own, so that several of
them can live in one process. Labels hold only what the configuration or the protocol bounds: no id, no
path as it was asked for, no text. `docs/operations.md` lists the metrics.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    Info,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from perdure import __version__
from perdure.config.sections import LimitSettings

# A second series for every counter, which nobody reads.
disable_created_metrics()  # type: ignore[no-untyped-call]

REQUEST_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
MODEL_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640)
TURN_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
COMMIT_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
COMMIT_OPERATIONS = (1, 2, 4, 8, 16, 32, 64, 128, 256)

# Where a provider serves any model name, clients choose the names: so many have series of their own.
MODELS_NAMED = 100
OTHER = "other"


class HttpMetrics:
    """Requests and event streams. `sent` is a plain number because a stream adds to it with each write."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "perdure_http_requests", "Requests answered.", ("method", "route", "code"), registry=registry
        )
        self.duration = Histogram(
            "perdure_http_request_duration_seconds",
            "Time to the last byte of an answer; of an event stream, to its first.",
            ("method", "route"),
            buckets=REQUEST_SECONDS,
            registry=registry,
        )
        self.in_flight = Gauge(
            "perdure_http_requests_in_flight",
            "Requests being answered, less open streams.",
            registry=registry,
        )
        self.streams_open = Gauge("perdure_event_streams_open", "Open event streams.", registry=registry)
        self.streams_interrupted = Counter(
            "perdure_event_streams_interrupted",
            "Event streams ended because their reader was too slow.",
            registry=registry,
        )
        self.sent = 0
        registry.register(_Sent(self))


class _Sent(Collector):
    def __init__(self, http: HttpMetrics) -> None:
        self._http = http

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily(
            "perdure_event_stream_sent_bytes", "Bytes sent on event streams.", value=self._http.sent
        )


@dataclass(frozen=True, slots=True)
class ModelLabels:
    """The label values of one model: the configured provider's name, and the model's name there."""

    provider: str
    model: str


class LoopMetrics:
    """Sessions, turns and model calls of this process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        model = ("provider", "model")
        self.sessions_running = Gauge(
            "perdure_sessions_running", "Sessions that this process runs now.", registry=registry
        )
        self.model_calls_running = Gauge(
            "perdure_model_calls_running", "Model calls under way.", registry=registry
        )
        self.model_calls_waiting = Gauge(
            "perdure_model_calls_waiting",
            "Model calls that wait for work.model_concurrency.",
            registry=registry,
        )
        self.model_calls = Counter(
            "perdure_model_calls",
            "Model calls ended. The outcome is ok, cancelled, retryable_error or error.",
            (*model, "outcome", "code"),
            registry=registry,
        )
        self.model_call_duration = Histogram(
            "perdure_model_call_duration_seconds",
            "Time from a model call's start to its end, however it ended.",
            model,
            buckets=MODEL_SECONDS,
            registry=registry,
        )
        self.first_output = Histogram(
            "perdure_model_first_output_seconds",
            "Time from a model call's start to the first output of its answer.",
            model,
            buckets=MODEL_SECONDS,
            registry=registry,
        )
        self.tokens = Counter(
            "perdure_model_tokens",
            "Tokens that providers told. The kinds do not overlap: their sum is the total.",
            (*model, "kind"),
            registry=registry,
        )
        self.retries = Counter(
            "perdure_model_call_retries",
            "Model calls that failed and were to be made again.",
            (*model, "code"),
            registry=registry,
        )
        self.tool_calls = Counter(
            "perdure_tool_calls",
            "Tool calls of models: announced to the application, or answered by the server itself.",
            ("outcome",),
            registry=registry,
        )
        self.cost = Counter(
            "perdure_model_cost",
            "What model calls cost by the configured prices, in units of the currency.",
            (*model, "currency"),
            registry=registry,
        )
        self.limits_hit = Counter(
            "perdure_limits_hit", "Calls refused by a ceiling, by its name.", ("limit",), registry=registry
        )
        self.turns_ended = Counter(
            "perdure_turns_ended", "Turns ended, with the error code of failed ones.", ("status", "code"),
            registry=registry,
        )  # fmt: skip
        self.turn_active = Histogram(
            "perdure_turn_active_seconds",
            "Active time of ended turns; waiting for the application does not count.",
            buckets=TURN_SECONDS,
            registry=registry,
        )
        self.turns_recovered = Counter(
            "perdure_turns_recovered",
            "Turns taken up in the middle of their work, which another owner left.",
            registry=registry,
        )
        self.writes_fenced = Counter(
            "perdure_writes_fenced",
            "Writes refused because another owner had taken the session over.",
            registry=registry,
        )
        for outcome in ("announced", "refused"):
            self.tool_calls.labels(outcome)
        for name in LimitSettings.model_fields:
            if "_per_" in name or name.startswith("repeated_"):
                self.limits_hit.labels(name)
        for status in ("completed", "cancelled"):
            self.turns_ended.labels(status, "")
        self._models: dict[tuple[str, str], ModelLabels] = {}

    def labels_of(self, provider: str, model: str) -> ModelLabels:
        """The labels of a model; those of a provider's further models once too many have been seen."""
        known = self._models.get((provider, model))
        if known is None:
            if len(self._models) >= MODELS_NAMED:
                return ModelLabels(provider, OTHER)
            known = self._models[provider, model] = ModelLabels(provider, model)
        return known

    def turn_ended(self, status: str, code: str | None, active_us: int) -> None:
        """Count a turn whose end is committed; `code` is that of a failed one."""
        self.turns_ended.labels(status, code or "").inc()
        self.turn_active.observe(active_us / 1e6)


class StoreMetrics:
    """The transactions that this process commits. Its methods may be called from any thread."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.commits = Counter("perdure_store_commits", "Transactions committed.", registry=registry)
        self.operations = Histogram(
            "perdure_store_commit_operations",
            "Operations that one commit made durable.",
            buckets=COMMIT_OPERATIONS,
            registry=registry,
        )
        self.duration = Histogram(
            "perdure_store_commit_duration_seconds",
            "Time from a transaction's begin to the end of its commit.",
            buckets=COMMIT_SECONDS,
            registry=registry,
        )
        self.failures = Counter(
            "perdure_store_commit_failures",
            "Transactions that failed: the database was unusable, or there was an error in them.",
            ("reason",),
            registry=registry,
        )
        self.queued = Gauge(
            "perdure_store_queued_operations", "Operations that wait for a transaction.", registry=registry
        )
        for reason in ("unusable", "error"):
            self.failures.labels(reason)

    def committed(self, operations: int, seconds: float) -> None:
        """Count a commit of so many operations that took so long."""
        self.commits.inc()
        self.operations.observe(operations)
        self.duration.observe(seconds)

    def failed(self, *, unusable: bool) -> None:
        """Count a transaction that was not committed; `unusable`: no fault of what was in it."""
        self.failures.labels("unusable" if unusable else "error").inc()

    def watch_queue(self, length: Callable[[], int]) -> None:
        """Ask for the queue's length whenever somebody wants to know it."""
        self.queued.set_function(length)


@dataclass(frozen=True, slots=True)
class Backlog:
    """What the database holds that is not done: for how long the oldest has waited, in seconds, 0 for none.

    `turns` counts unfinished turns by status, `inputs` what was accepted and is not yet applied. An
    input behind the results that a turn waits for does not count as old: it waits for the application.
    """

    turns: Mapping[str, int]
    oldest_queued: float
    inputs: int
    oldest_input: float


class DatabaseMetrics(Collector):
    """What the last look at the database showed; nothing before the first one, and in a worker."""

    def __init__(self) -> None:
        self._looked_at: float | None = None
        self._backlog: Backlog | None = None

    def is_older_than(self, seconds: float) -> bool:
        """Whether the last look was longer ago, or never."""
        return self._looked_at is None or time.monotonic() - self._looked_at > seconds

    def show(self, backlog: Backlog | None) -> None:
        """Keep what was seen; None when the database could not be read."""
        self._looked_at, self._backlog = time.monotonic(), backlog

    def describe(self) -> Iterator[Metric]:
        yield from _database_families(Backlog({}, 0, 0, 0))

    def collect(self) -> Iterator[Metric]:
        if self._looked_at is not None:
            yield from _database_families(self._backlog)


def _database_families(seen: Backlog | None) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "perdure_database_up", "Whether the last look at the database succeeded.", value=seen is not None
    )
    if seen is None:
        return
    turns = GaugeMetricFamily(
        "perdure_turns_unfinished", "Unfinished turns in the database.", labels=("status",)
    )
    for status in ("queued", "in_progress", "waiting"):
        turns.add_metric((status,), seen.turns.get(status, 0))
    yield turns
    yield GaugeMetricFamily(
        "perdure_turns_oldest_queued_age_seconds",
        "Age of the oldest turn that nobody has begun.",
        value=seen.oldest_queued,
    )
    yield GaugeMetricFamily("perdure_inbox_inputs", "Inputs accepted and not yet applied.", value=seen.inputs)
    yield GaugeMetricFamily(
        "perdure_inbox_oldest_age_seconds",
        "Age of the oldest input that does not wait for the application.",
        value=seen.oldest_input,
    )


class Metrics:
    """All metrics of one server or worker, in a registry of their own.

    `common` holds those that are the same in all processes of one server.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.common = CollectorRegistry()
        build = Info("perdure_build", "The running version.", registry=self.registry)
        build.info({"version": __version__})
        self.common.register(build)
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self.http = HttpMetrics(self.registry)
        self.loop = LoopMetrics(self.registry)
        self.store = StoreMetrics(self.registry)
        self.database = DatabaseMetrics()
        self.registry.register(self.database)
        self.common.register(self.database)
