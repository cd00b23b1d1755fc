"""`advance`: run a session until all of it waits.

Everything a session needs to go on is rows. `advance` claims the session and lets its agents work, each
from boundary to boundary; when it returns, nothing of the session is left in memory that matters. Calling
it again after a crash is recovery.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from perdure.harness.crew import Crew
from perdure.harness.deps import Deps
from perdure.harness.ownership import OwnershipLost
from perdure.store.claims import claim
from perdure.store.handover import hand_back
from perdure.store.locked import Fenced, SessionGone

log = logging.getLogger(__name__)


async def advance(
    deps: Deps, session_id: str, arrived: asyncio.Event, draining: Callable[[], bool] = lambda: False
) -> None:
    """Take the session over and run its turns until it waits or is idle.

    Args:
        arrived: set by whoever accepts input for the session while this runs.
        draining: whether to hand the session back at the next step boundary.
    """
    arrived.clear()
    deps.metrics.loop.sessions_running.inc()
    try:
        if not deps.ownership.alive():
            raise OwnershipLost
        owner = deps.ownership.owner
        boundary = await deps.store.write(claim, session_id, owner=owner, policy=deps.policy)
        if boundary is None:
            return
        deps.tracing.claimed(boundary)
        unbegun = await Crew(deps, boundary, arrived, draining).run()
        if unbegun or draining():
            await deps.store.write(hand_back, session_id, owner, unbegun)
    except Fenced:
        deps.background.drop_session(session_id)
        deps.metrics.loop.writes_fenced.inc()
        log.info("session %s has another owner; stopping", session_id)
    except OwnershipLost:
        deps.background.drop_session(session_id)
        log.info("session %s may have another owner; stopping", session_id)
    except SessionGone:
        deps.background.drop_session(session_id)
        log.info("session %s is gone; stopping", session_id)
    finally:
        deps.metrics.loop.sessions_running.dec()
        deps.hub.abandon(session_id)
        deps.tracing.left(session_id)
