"""Servers that are told to stop, and servers that stand still."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest

from .conftest import Databases
from .database import check_database
from .drive import Drive
from .forge import Forge
from .model import MODEL, Model
from .scenario import TOOLS, check_scenario, kind_of, run_scenario, whole
from .witness import text_of

pytestmark = pytest.mark.slow

HELD = ["user", "assistant", "function_call", "function_call_output", "assistant"]


@pytest.fixture
def held(forge: Forge, model: Model, tmp_path: Path, databases: Databases) -> Drive:
    """A session in whose first step the model pauses in mid-text; the second step would follow at once."""
    drive = Drive(forge, model, tmp_path, url=databases())
    drive.create("Hold the line.", model=MODEL, tools=TOOLS)
    drive.until(lambda seen: kind_of(seen.items[-1]) == "assistant")
    return drive


def check_held(drive: Drive, steps: int) -> None:
    """The held turn has ended as if nothing had happened; `steps` were charged."""
    final = drive.until(lambda seen: seen.status == "idle")
    assert drive.stop() == 0
    assert drive.session_id is not None
    drive.witness.check(final)
    check_database(drive.storage, drive.session_id, drive.witness.streams)
    assert drive.model.provider.violations == []
    assert [kind_of(item) for item in final.items if whole(item)] == HELD
    (turn,) = final.turns
    assert turn["status"] == "completed"
    assert turn["usage"]["total_tokens"] == steps * 120


def test_a_step_that_outlasts_the_drain_is_repeated_by_the_next_server(held: Drive) -> None:
    assert held.restart() == 0
    held.model.hold.release()
    check_held(held, steps=2)
    assert len(held.model.provider.requests) == 3


def test_a_step_that_ends_while_the_server_stops_is_not_repeated(held: Drive) -> None:
    held.tell_to_stop()
    held.model.hold.release()
    assert held.replace() == 0
    check_held(held, steps=2)
    first = held.model.provider.requests[0].body["input"]
    assert [request.body["input"] for request in held.model.provider.requests].count(first) == 1


@pytest.mark.parametrize(
    "point", ["commit_step:before-commit#2", "accept_once:after-commit#1", "model:first-output#4"]
)
def test_a_server_that_stood_still_goes_on(
    point: str, forge: Forge, model: Model, tmp_path: Path, databases: Databases
) -> None:
    drive = Drive(forge, model, tmp_path, [f"{point}=stop"], url=databases())
    stopped: list[int] = []

    def wake() -> None:
        forge.wait_stopped()
        stopped.append(forge.pid)
        forge.send_signal(signal.SIGCONT)

    waker = threading.Thread(target=wake, daemon=True)
    waker.start()
    final = run_scenario(drive)
    waker.join(0)
    assert stopped == [forge.pid]
    assert drive.stop() == 0
    check_scenario(drive, final)


def test_a_server_that_stood_still_in_mid_text_goes_on(held: Drive, forge: Forge) -> None:
    forge.send_signal(signal.SIGSTOP)
    forge.wait_stopped()
    held.model.hold.release()
    forge.send_signal(signal.SIGCONT)
    final = held.until(lambda seen: seen.status == "idle")
    assert [text_of(item) for item in final.items if kind_of(item) == "assistant"] == [
        "I hold the line.",
        "I held it.",
    ]
    check_held(held, steps=2)
    assert len(held.model.provider.requests) == 2
