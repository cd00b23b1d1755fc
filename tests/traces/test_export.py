"""Where spans go: over HTTP to a collector, and nowhere unless asked."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from openai import OpenAI
from tests.conformance.sessions import create_idle
from tests.conformance.watch import DEADLINE
from tests.server import ServerProcess, scripted_config
from tests.traces.collector import Collector, silent_collector

from perdure.api.traces import open_tracing
from perdure.config import telemetry
from perdure.config.settings import ConfigError, Settings, TelemetrySettings
from perdure.harness.tracing import OFF

ECHO = '[[rule]]\nwhen = {}\nanswer = [{ text = "Hello." }]\n'
ON = "[telemetry]\ntraces = true\n"
BRIEFLY = "[server]\nshutdown_grace = 0.5\n"
WITH_TRACES = Settings(telemetry=TelemetrySettings(traces=True))


def serve(home: Path, settings: str = ON, **environ: str) -> ServerProcess:
    return ServerProcess(scripted_config(home, {"echo": ECHO}, settings), home / "data", environ=environ)


def run_a_session(server: ServerProcess) -> str:
    client = OpenAI(base_url=server.base_url, api_key=server.api_key, timeout=DEADLINE)
    return str(create_idle(client).id)


def test_a_server_sends_its_last_spans_when_it_stops(tmp_path: Path) -> None:
    with Collector() as collector:
        with serve(
            tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, OTEL_BSP_SCHEDULE_DELAY="600000"
        ) as server:
            session_id = run_a_session(server)
            server.stop()
        assert collector.paths == {"/v1/traces"}
        assert collector.services == {"perdure"}
        assert [span.name for span in collector.spans] == ["chat echo", "invoke_agent"]
        call, agent = collector.spans
        assert call.trace_id == agent.trace_id
        assert call.parent_span_id == agent.span_id
        said = {each.key: each.value.string_value for each in agent.attributes}
        assert said["gen_ai.conversation.id"] == session_id


def test_the_environment_names_the_service(tmp_path: Path) -> None:
    with Collector() as collector:
        environ = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{collector.url}/in", "OTEL_SERVICE_NAME": "orders"}
        with serve(tmp_path, **environ) as server:
            run_a_session(server)
            server.stop()
        assert collector.paths == {"/in"}
        assert collector.services == {"orders"}


def test_a_collector_that_never_answers_disturbs_no_turn_and_no_stop(tmp_path: Path) -> None:
    with (
        silent_collector() as url,
        serve(
            tmp_path, f"{BRIEFLY}\n{ON}", OTEL_EXPORTER_OTLP_ENDPOINT=url, OTEL_BSP_SCHEDULE_DELAY="1"
        ) as server,
    ):
        run_a_session(server)
        server.stop()
        assert "the collector did not take the last spans" in server.stderr()


def test_nothing_is_sent_unless_traces_are_asked_for(tmp_path: Path) -> None:
    with Collector() as collector:
        with serve(
            tmp_path, "", OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, OTEL_BSP_SCHEDULE_DELAY="1"
        ) as server:
            run_a_session(server)
            server.stop()
        assert collector.paths == set()


def test_without_traces_nothing_is_loaded_for_them() -> None:
    code = (
        "import sys\nimport perdure\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
        "import perdure.api.app, perdure.api.server, perdure.api.services\n"
        "from perdure.api.traces import open_tracing\nfrom perdure.config.settings import Settings\n"
        "open_tracing(Settings())\n"
        "heavy = ('opentelemetry.sdk', 'opentelemetry.exporter', 'opentelemetry.proto', 'google.protobuf',"
        " 'requests', 'perdure.harness.spans', 'perdure.harness.call_span')\n"
        "print(*[name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == ""
    assert open_tracing(Settings()) is OFF


@pytest.mark.parametrize(
    "missing", ["opentelemetry.sdk.resources", "opentelemetry.exporter.otlp.proto.http.trace_exporter"]
)
def test_a_missing_package_is_told_with_what_to_install(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ConfigError, match=r"telemetry\.traces: is on, .*pip install 'perdure\[telemetry\]'"):
        open_tracing(WITH_TRACES)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_server_that_cannot_trace_does_not_start(tmp_path: Path, workers: str) -> None:
    config = scripted_config(tmp_path, {"echo": ECHO}, ON)
    # Two processes need PostgreSQL; none of them gets as far as connecting.
    database = [] if workers == "1" else ["--database", "postgresql://nobody@127.0.0.1:1/none"]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "perdure.cli.main", "serve", "--port", "0", "--workers", workers),
            *("--config", str(config), "--data-dir", str(tmp_path / "data"), *database),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": "", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
    )
    assert done.returncode == 2, done.stderr
    assert "OTEL_EXPORTER_OTLP_PROTOCOL is 'grpc'; allowed: http/protobuf" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_variable_that_makes_no_sense_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "0")
    with pytest.raises(ConfigError, match=r"telemetry\.traces: is on, but an OTEL_\* variable"):
        open_tracing(WITH_TRACES)


def test_the_guide_lists_every_attribute_and_event_and_no_other() -> None:
    text = (Path(__file__).parents[2] / "docs" / "operations.md").read_text("utf-8")
    part = text.partition("\n## Traces\n")[2].partition("\n## ")[0]
    told = set(re.findall(r"`((?:gen_ai|perdure|error|server|http)\.[a-z_.]+[a-z])`", part))
    used = {value for name, value in vars(telemetry).items() if name.isupper() and isinstance(value, str)}
    spoken = {each for each in used if re.match(r"(gen_ai|perdure|error|server|http)\.", each)}
    usage = {each for each in spoken if each.startswith("gen_ai.usage.")}
    assert "`gen_ai.usage.*`" in part
    assert told - {"server.shutdown_grace"} == spoken - usage
