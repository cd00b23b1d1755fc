"""The demo as its reader runs it: it starts a server, plays eight acts and leaves nothing behind."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.server import ServerProcess

EXAMPLES = Path(__file__).parents[2] / "examples"
TIMEOUT = 180.0

pytestmark = pytest.mark.slow

ACTS = [
    "1. The server",
    "2. A tool with a schema",
    "3. Another process",
    "4. A bad argument",
    "5. A lost connection",
    "6. A killed server",
    "7. Three at once",
    "8. The chain of ids",
]


def environment(temporary: Path) -> dict[str, str]:
    """Temporary files go to `temporary`; what the user has set for other programs must not matter."""
    return {
        **os.environ,
        "TMPDIR": str(temporary),
        "PYTHONUNBUFFERED": "1",
        "OPENAI_API_KEY": "not for the demo",
        "PERDURE_SERVER_PORT": "none of its business",
    }


def run_demo(temporary: Path, *arguments: str, examples: Path = EXAMPLES) -> subprocess.CompletedProcess[str]:
    temporary.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, str(examples / "demo.py"), *arguments],
        env=environment(temporary),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=TIMEOUT,
        check=False,
    )


@contextmanager
def started_demo(temporary: Path) -> Iterator[subprocess.Popen[str]]:
    """The demo in the background; it does not outlive the test."""
    process = subprocess.Popen(
        [sys.executable, str(EXAMPLES / "demo.py")],
        env=environment(temporary),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def server_processes(printed: str) -> list[int]:
    """The first server, and the one after the kill if the demo came so far."""
    processes = [int(number) for number in re.findall(r"perdure serve, process (\d+), ", printed)]
    assert processes, printed
    return processes


def is_running(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    """One run with `--keep`, and the directory for its temporary files."""
    temporary = tmp_path_factory.mktemp("kept")
    return run_demo(temporary, "--keep"), temporary


def test_every_claim_of_the_demo_holds(kept: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    done, _ = kept
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert [line for line in lines if line in ACTS] == ACTS
    assert "✗" not in done.stdout
    assert re.search(r"^28 claims, all of them true, in \d+\.\d s\.$", done.stdout, re.MULTILINE)


def test_the_demo_shows_events_calls_and_the_chain(
    kept: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    printed = kept[0].stdout
    identifier = "[0-9A-Za-z]{24}"
    for pattern in (
        rf"← created sess_{identifier}",
        rf"← requires_action\n +turn_{identifier} call_{identifier}",
        r'→ tool_result {"order_id": "A-1042", "status": "shipped"}',
        rf"│ owed call_{identifier}: lookup_order",
        r"function_call \(failed\) lookup_order {\"order_id\": \"A1042\"}",
        r"✂ Connection error\.",
        r"☠ kill -9 \d+\n",
        r"  · assistant \(incomplete\): Dear customer, we have looked up your order B-2077",
        rf"└── turn turn_{identifier}\n    ├── user: Write a letter about B-2077\.",
        rf"← subagent.created sub_{identifier} 'invoice'",
        rf"agent_message from sub_{identifier}: 5 lamps were billed",
        rf"fco_{identifier}  call_{identifier}",
    ):
        assert re.search(pattern, printed), f"{pattern} is not in\n{printed}"


def test_the_servers_end_with_the_demo(kept: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    first, second = server_processes(kept[0].stdout)
    assert first != second
    assert not is_running(first)
    assert not is_running(second)


def test_a_kept_directory_is_named_and_can_be_served(
    kept: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    done, temporary = kept
    (data_dir,) = temporary.glob("perdure-demo-*")
    assert f"perdure serve --config {EXAMPLES / 'settings.toml'} --data-dir {data_dir}" in done.stdout
    with ServerProcess(EXAMPLES / "settings.toml", data_dir):
        pass


@pytest.mark.parametrize(
    ("number", "status", "moment"),
    [
        (signal.SIGINT, 130, "requires_action"),
        (signal.SIGTERM, 143, "requires_action"),
        (signal.SIGINT, 130, "kill -9"),
    ],
    ids=["ctrl-c", "sigterm", "ctrl-c between two servers"],
)
def test_a_stopped_demo_leaves_nothing(
    tmp_path: Path, number: signal.Signals, status: int, moment: str
) -> None:
    with started_demo(tmp_path) as demo:
        assert demo.stdout is not None
        printed = ""
        for line in demo.stdout:
            printed += line
            if moment in line:
                demo.send_signal(number)
                demo.send_signal(number)
        assert demo.wait(TIMEOUT) == status, printed
    assert not any(map(is_running, server_processes(printed)))
    assert list(tmp_path.iterdir()) == []
    assert "Traceback" not in printed


def test_a_server_that_does_not_start_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    examples = tmp_path / "examples"
    shutil.copytree(EXAMPLES, examples)
    (examples / "storyteller.toml").write_text("[otherwise]\nanswer = 7\n", encoding="utf-8")
    done = run_demo(tmp_path / "temporary", examples=examples)
    assert done.returncode == 1
    assert "✗ ServerFailed: The server did not start." in done.stdout
    assert "storyteller.toml" in done.stdout.replace("\n", "")
    assert list((tmp_path / "temporary").iterdir()) == []


def test_help_says_what_the_demo_does(tmp_path: Path) -> None:
    done = run_demo(tmp_path, "--help")
    assert done.returncode == 0
    assert "--keep" in done.stdout
    assert "eight acts" in done.stdout


def order_desk(*arguments: str, **environ: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "order_lookup.py"), *arguments],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_order_desk(printed: str) -> None:
    lines = printed.splitlines()
    assert lines[:3] == [
        "Resolution(order_id='A-1042', message='Order A-1042 is shipped.')",
        "True",
        "Our specialist says: Order A-1042 is shipped.",
    ]
    assert lines[3].startswith("escalated, normal: The invoice is wrong. (call call_")
    assert lines[4] == "Billing: Billing has the case and will write to you."
    assert "'ids': {'order_id': 'A-1042'}" in lines[5]


def test_the_order_desk_runs_without_a_server(tmp_path: Path) -> None:
    check_order_desk(order_desk(TMPDIR=str(tmp_path), PERDURE_JOURNAL=""))


def test_the_order_desk_runs_on_a_server(tmp_path: Path) -> None:
    with ServerProcess(EXAMPLES / "order_settings.toml", tmp_path / "data") as server:
        journal = str(tmp_path / "journal.db")
        check_order_desk(order_desk(server.url, PERDURE_API_KEY=server.api_key, PERDURE_JOURNAL=journal))
