"""`advance`: run a session until all of it waits.

Everything a session needs to go on is rows. `advance` claims the session, reads them, and goes from
boundary to boundary; when it returns, nothing of the session is left in memory that matters. Calling
it again after a crash is recovery.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from perdure.harness.conversation import Conversation
from perdure.harness.deps import Deps
from perdure.harness.ownership import OwnershipLost
from perdure.harness.step import Step
from perdure.store.boundary import Boundary, Failure, claim
from perdure.store.compactions import load_history
from perdure.store.engine import StoreError
from perdure.store.handover import hand_back
from perdure.store.locked import Fenced, SessionGone
from perdure.store.steps import Spent, abandon_step

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
        boundary = await deps.store.write(
            claim, session_id, owner=owner, call_timeout_us=deps.call_timeout_us
        )
        if boundary is None:
            return
        epoch = boundary.lease.epoch
        conversation = deps.conversations.take(session_id, epoch)
        if conversation is None:
            if boundary.state != "run":
                return
            # Everything there is; a kept conversation lacks only what the boundary brings.
            agent_id = boundary.config.agent.id
            history = await deps.store.read(load_history, session_id, agent_id)
            conversation = Conversation(history.items, history.compaction)
        while boundary.state == "run" and not draining():
            conversation.update(boundary.items)
            boundary = await _step(deps, boundary, conversation, arrived)
        conversation.update(boundary.items)
        deps.conversations.keep(session_id, epoch, conversation)
        if boundary.state == "run":
            await deps.store.write(hand_back, session_id, owner)
    except Fenced:
        deps.background.drop(session_id)
        deps.metrics.loop.writes_fenced.inc()
        log.info("session %s has another owner; stopping", session_id)
    except OwnershipLost:
        deps.background.drop(session_id)
        log.info("session %s may have another owner; stopping", session_id)
    except SessionGone:
        deps.background.drop(session_id)
        log.info("session %s is gone; stopping", session_id)
    finally:
        deps.metrics.loop.sessions_running.dec()
        deps.hub.abandon(session_id)


async def _step(
    deps: Deps, boundary: Boundary, conversation: Conversation, arrived: asyncio.Event
) -> Boundary:
    """One step; a bug of ours fails the turn, never the session, and a failing database neither."""
    assert boundary.turn is not None
    try:
        return await Step(deps, boundary, conversation, arrived).run()
    except (Fenced, OwnershipLost, SessionGone, StoreError):
        raise
    except Exception:
        log.exception("a step of turn %s failed", boundary.turn.id)
        failure = Failure("internal_error", "The server failed while it ran the turn. See its log.")
        return await deps.store.write(
            abandon_step, boundary.lease, boundary.turn.id, [], Spent(None, 0, 0), failure=failure
        )
