"""A session that outgrows its model's window, on nodes and workers."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from tests.crash.drive import write_config
from tests.crash.model import MODEL
from tests.crash.saga import BESIDE, LONG, LOOKUPS, METADATA, TOOLS, SagaModel, message, result, saga_table
from tests.crash.scenario import owed, until_idle
from tests.crash.witness import Seen

from .conftest import MakeCluster
from .drive import ClusterDrive
from .installation import DRAIN, Cluster, settings_text


def make_saga(
    make_cluster: MakeCluster, saga: SagaModel, home: Path, *, lease: float | None = None
) -> Cluster:
    """A cluster whose model has the saga's window; nothing is started yet."""
    settings = settings_text("", DRAIN)
    if lease is not None:
        settings = settings.replace("lease = ", f"lease = {lease} # not ")
    config = write_config(home, saga, settings, saga_table)
    saga.renew()
    cluster = make_cluster(config=config)
    cluster.model = saga
    return cluster


def begin_beside(drive: ClusterDrive, saga: SagaModel) -> int:
    """Take turns until a summary is asked for, which the model holds; returns how many there were."""
    saga.held = True
    agent: Any = BESIDE
    drive.create(message(1), metadata=METADATA, model=MODEL, tools=TOOLS, **agent)
    until_idle(drive, 1)
    number = 1
    while not saga.asked.is_set():
        number += 1
        take_turn(drive, number)
    return number


def take_turn(drive: ClusterDrive, number: int, story: str = LONG, *, steered: int = 0) -> Seen:
    """One message, the result of its function if it calls one, and its end; `steered` had no turn."""
    drive.say(message(number, story))
    if number in LOOKUPS:
        drive.answer(await_call(drive), result(number, story))
    return until_idle(drive, number - steered)


def await_call(drive: ClusterDrive) -> Any:
    """The call whose result the session waits for."""
    (action,) = owed(drive.until(lambda seen: len(owed(seen)) == 1))
    return action


def calls_of(drive: ClusterDrive, purpose: str) -> Counter[str]:
    """How the calls of the session ended that are listed."""
    rows = drive.storage.query(
        "SELECT outcome FROM model_calls WHERE session_id = ? AND purpose = ?", drive.session_id, purpose
    )
    return Counter(outcome for (outcome,) in rows)


def under_way(drive: ClusterDrive) -> int:
    """Summaries that are counted and have not ended."""
    ((spent,),) = drive.storage.query("SELECT spent FROM sessions WHERE id = ?", drive.session_id)
    return len(json.loads(spent).get("beside", ()))
