"""What nodes do while no worker lives, and what a worker that comes later does with it."""

from __future__ import annotations

from typing import Any

import pytest
from openai import NotFoundError
from tests.crash.model import MODEL
from tests.crash.scenario import kind_of, until_idle
from tests.crash.witness import text_of

from .conftest import MakeCluster
from .drive import ClusterDrive
from .installation import Cluster
from .story import TOOLS, StoryModel

pytestmark = pytest.mark.slow

CANCEL = {"type": "agent.session.input.cancel"}


def begin_without_worker(cluster: Cluster) -> ClusterDrive:
    """A session whose worker dies while the model tells a story."""
    drive = ClusterDrive(cluster)
    drive.create("Tell a story.", model=MODEL, tools=TOOLS)
    drive.until(lambda seen: text_of(seen.items[-1]).count("word") > 1)
    drive.tended = False
    cluster.workers[0].kill()
    return drive


def test_a_cancel_without_a_worker_ends_the_turn(make_cluster: MakeCluster, model: StoryModel) -> None:
    """What was shown is kept, and the session goes on when a worker comes."""
    cluster = make_cluster()
    drive = begin_without_worker(cluster)
    asked = len(model.provider.requests)
    drive.send(CANCEL)
    seen = until_idle(drive, 1)
    assert seen.ended == ["cancelled"]
    assert [kind_of(item) for item in seen.items] == ["user", "assistant"]
    assert seen.items[-1]["status"] == "incomplete"
    drive.say("Good morning.")
    cluster.workers[1].start()
    final = until_idle(drive, 2)
    assert final.ended == ["cancelled", "completed"]
    drive.finish()
    drive.witness.check(final)
    assert len(model.provider.requests) == asked + 1
    assert model.provider.violations == []


def test_a_session_that_was_cancelled_without_a_worker_can_be_deleted(
    make_cluster: MakeCluster, model: StoryModel
) -> None:
    """Its stream ends on both nodes; a worker that comes later leaves it alone."""
    cluster = make_cluster()
    drive = begin_without_worker(cluster)
    asked = len(model.provider.requests)
    drive.send(CANCEL)
    until_idle(drive, 1)
    with cluster.nodes[0].client() as deleting, cluster.nodes[1].client() as looking:
        session_id: str = drive.session_id or ""
        deleting.beta.agents.sessions.delete(session_id)
        drive.wait_stream_end()
        for client in (deleting, looking):
            with pytest.raises(NotFoundError):
                client.beta.agents.sessions.retrieve(session_id)
        cluster.workers[1].start()
        greeting: Any = looking.beta.agents.sessions.create(
            agent={"model": MODEL}, environment={"type": "none"}, input="Good morning.", stream=True
        )
        assert [event.type for event in greeting][-1] == "agent.session.idle"
    drive.finish()
    assert len(model.provider.requests) == asked + 1
    assert model.provider.violations == []
    assert "Traceback" not in cluster.logged(), cluster.logged()


def test_input_that_was_accepted_without_a_worker_is_run_when_one_comes(
    make_cluster: MakeCluster, model: StoryModel
) -> None:
    """Created, followed by more, cancelled and followed again: all before there is any worker."""
    cluster = make_cluster()
    drive = ClusterDrive(cluster, tended=False)
    drive.create("Thanks.", model=MODEL, tools=TOOLS)
    drive.say("Thanks again.")
    drive.send(CANCEL)
    drive.until(lambda seen: seen.ended == ["cancelled"])
    drive.say("And goodbye.")
    assert model.provider.requests == []
    cluster.workers[1].start()
    final = drive.until(lambda seen: seen.status == "idle")
    drive.finish()
    drive.witness.check(final)
    assert final.ended == ["cancelled", "completed"]
    assert final.messages("user") == ["Thanks.", "Thanks again.", "And goodbye."]
