"""A session whose model pauses in mid-text until the test lets it go on."""

from __future__ import annotations

from tests.crash.model import MODEL
from tests.crash.scenario import kind_of, whole
from tests.crash.test_signals import HELD

from .drive import ClusterDrive
from .installation import Cluster
from .story import TOOLS


def begin_held(cluster: Cluster) -> ClusterDrive:
    """The model pauses in the first step of the session's turn; the second step follows at once."""
    drive = ClusterDrive(cluster)
    drive.create("Hold the line.", model=MODEL, tools=TOOLS)
    drive.until(lambda seen: kind_of(seen.items[-1]) == "assistant")
    return drive


def check_held(drive: ClusterDrive, *, requests: int) -> None:
    """The turn has ended as if nothing had happened, with so many model calls."""
    final = drive.until(lambda seen: seen.status == "idle")
    drive.finish()
    drive.witness.check(final)
    assert len(drive.model.provider.requests) == requests
    assert drive.model.provider.violations == []
    assert [kind_of(item) for item in final.items if whole(item)] == HELD
    (turn,) = final.turns
    assert turn["status"] == "completed"
