"""All agents of one session at work: each that can go on has a task, and the rest are rows.

    rows ──look──▶ at work ──step──▶ boundary ─ run ─▶ step …
      ▲                                 │
      ╰──── waiting, idle ◀─────────────╯        a boundary names other agents that have to look

The session is claimed once, for all of them; their steps run beside each other and their transactions one
after the other. When no agent is at work, the session waits or is idle, and `advance` returns.

What arrives from outside is looked at here, once for all: a cancel stops the steps of the subagents first and
then the root's, whose boundary ends all their turns in one transaction; everything else is for the root.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from perdure.harness.conversation import Conversation
from perdure.harness.conversations import place_of
from perdure.harness.deps import Deps
from perdure.harness.halt import Halt
from perdure.harness.ownership import OwnershipLost
from perdure.harness.step import Step
from perdure.store.boundary import Boundary, Failure
from perdure.store.claims import look
from perdure.store.compactions import load_history
from perdure.store.engine import StoreError
from perdure.store.handover import Arrivals, read_arrivals
from perdure.store.locked import Fenced, SessionGone
from perdure.store.steps import Spent, abandon_step

log = logging.getLogger(__name__)

STOP_SECONDS = 2.0
"""How long a cancel waits for the steps of subagents to break off; what they had saved is kept anyway."""


@dataclass(slots=True, eq=False)
class Hand:
    """An agent as this process knows it.

    Args:
        again: something happened while the agent was at work that it may not have seen.
        is_stale: others changed the agent's items: its conversation has to be read anew.
        left: the boundary at which the agent stopped working.
        above: the agent that created it, as far as a boundary has told.
    """

    agent_id: str
    halt: Halt = field(default_factory=Halt)
    again: bool = False
    is_stale: bool = False
    conversation: Conversation | None = None
    task: asyncio.Task[None] | None = None
    left: Boundary | None = None
    above: str | None = None


class Crew:
    """The agents of a claimed session. `arrived` is set when input for the session is accepted."""

    def __init__(
        self, deps: Deps, claimed: Boundary, arrived: asyncio.Event, draining: Callable[[], bool]
    ) -> None:
        self._deps = deps
        self._claimed = claimed
        self._lease = claimed.lease
        self._root = claimed.agent_id
        self._arrived = arrived
        self._draining = draining
        self._hands: dict[str, Hand] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._known: Arrivals | None = None

    async def run(self) -> int:
        """Work until no agent can go on, or the process drains.

        Returns:
            how many model calls were asked for and not begun.

        Raises:
            Fenced, OwnershipLost, SessionGone, StoreError: nothing more was written.
        """
        listening = asyncio.create_task(self._arrived.wait())
        try:
            self._set_to_work(self._root, self._claimed)
            self._tell_others(self._claimed)
            while self._tasks:
                done, _ = await asyncio.wait({*self._tasks, listening}, return_when=asyncio.FIRST_COMPLETED)
                for task in done & self._tasks:
                    self._tasks.discard(task)
                    task.result()
                if listening in done:
                    self._arrived.clear()
                    await self._hear()
                    listening = asyncio.create_task(self._arrived.wait())
        except BaseException:
            # Nobody may go on for a session whose owner stops; and what arrived is for the next one.
            await _end(*self._tasks, listening)
            raise
        await _end(listening)
        for hand in self._hands.values():
            if hand.conversation is not None and not hand.is_stale:
                self._deps.conversations.keep(self._place(hand), self._lease.epoch, hand.conversation)
        return sum(hand.left is not None and hand.left.is_reserved for hand in self._hands.values())

    # ---- what one agent may ask for others

    async def hold(self, holder: str, agent_ids: Iterable[str]) -> None:
        """Break off the steps of agents whose turns are about to be ended, and keep what they had written.

        Those that work for them are held as well, for their turns end too.
        """
        held = {agent: hand for agent in agent_ids if (hand := self._hands.get(agent)) is not None}
        while below := [
            hand for hand in self._hands.values() if hand.above in held and hand.agent_id not in held
        ]:
            held |= {hand.agent_id: hand for hand in below}
        for hand in held.values():
            if hand.task is not None:
                hand.halt.held_by.add(holder)
        await self._stop(held.values())

    def _let_go(self, holder: str) -> None:
        """Let agents that an agent held look at what has become of them."""
        for hand in tuple(self._hands.values()):
            if holder in hand.halt.held_by:
                hand.halt.held_by.discard(holder)
                self._wake([hand.agent_id])

    # ---- tasks

    def _wake(self, agent_ids: Iterable[str]) -> None:
        """Let agents look at what happened, now or behind the step that they make."""
        for agent_id in agent_ids:
            hand = self._hand(agent_id)
            if hand.task is not None:
                hand.again = True
            elif not self._draining():
                self._set_to_work(agent_id, None)

    def _hand(self, agent_id: str) -> Hand:
        return self._hands.setdefault(agent_id, Hand(agent_id))

    def _set_to_work(self, agent_id: str, boundary: Boundary | None) -> None:
        hand = self._hand(agent_id)
        hand.task = asyncio.create_task(self._work(hand, boundary), name=f"agent {agent_id}")
        self._tasks.add(hand.task)

    async def _work(self, hand: Hand, boundary: Boundary | None) -> None:
        """Go from boundary to boundary until the agent waits, is idle or held."""
        at_rest: Boundary | None = None
        try:
            while True:
                hand.again = False
                if boundary is None:
                    boundary = await self._look(hand)
                if boundary.subagent is not None:
                    hand.above = boundary.subagent.parent_agent_id
                while boundary.state == "run" and not self._draining() and not hand.halt.is_held:
                    if hand.halt.requested.is_set():
                        # Something came while the boundary was passed, which may have brought items.
                        await self._update(hand, boundary, needed=False)
                        hand.left = boundary
                        boundary = await self._look(hand)
                        continue
                    boundary = await self._step(hand, boundary)
                    self._tell_others(boundary)
                    self._let_go(hand.agent_id)
                await self._update(hand, boundary, needed=False)
                hand.left = boundary
                if not hand.again or hand.halt.is_held or self._draining():
                    at_rest = boundary
                    return
                boundary = None
        finally:
            hand.task = None
            self._deps.tracing.rests(self._lease.session_id, hand.agent_id, at_rest)

    async def _look(self, hand: Hand) -> Boundary:
        self._check_ownership()
        unbegun = hand.left is not None and hand.left.is_reserved
        hand.left = None
        hand.halt.requested.clear()
        boundary = await self._deps.store.write(
            look,
            self._lease,
            hand.agent_id,
            policy=self._deps.policy,
            unbegun=int(unbegun),
            owner=self._deps.ownership.owner,
        )
        self._tell_others(boundary)
        return boundary

    def _tell_others(self, boundary: Boundary) -> None:
        """Let other agents know what a transaction of this one did to them."""
        for agent_id in boundary.touched:
            hand = self._hand(agent_id)
            hand.is_stale = True
            self._deps.conversations.take(self._place(hand), self._lease.epoch)
        for agent_id in boundary.ended:
            # Its step, if it is still under way, is of a turn that is over.
            self._hand(agent_id).halt.requested.set()
        self._wake(boundary.woken)

    async def _step(self, hand: Hand, boundary: Boundary) -> Boundary:
        """One step; a bug of ours fails the turn, never the session, and a failing database neither."""
        assert boundary.turn is not None
        conversation = await self._update(hand, boundary, needed=True)
        assert conversation is not None
        self._deps.tracing.works(boundary, hand.above)
        try:
            return await Step(self._deps, boundary, conversation, hand.halt, self).run()
        except (Fenced, OwnershipLost, SessionGone, StoreError):
            raise
        except Exception:
            log.exception("a step of turn %s failed", boundary.turn.id)
            text = "The server failed while it ran the turn. See its log."
            return await self._deps.store.write(
                abandon_step,
                boundary.lease,
                boundary.turn.id,
                [],
                Spent(None, 0, 0),
                failure=Failure("internal_error", text),
                policy=self._deps.policy,
                agent_id=boundary.agent_id,
            )

    async def _update(self, hand: Hand, boundary: Boundary, *, needed: bool) -> Conversation | None:
        """Take what a boundary brought into the agent's conversation, which is read when it is needed."""
        if hand.is_stale:
            hand.is_stale, hand.conversation = False, None
        elif hand.conversation is None:
            hand.conversation = self._deps.conversations.take(self._place(hand), self._lease.epoch)
        if hand.conversation is not None:
            hand.conversation.update(boundary.items)
        elif needed:
            history = await self._deps.store.read(load_history, self._lease.session_id, hand.agent_id)
            hand.conversation = Conversation(history.items, history.compaction)
        return hand.conversation

    def _place(self, hand: Hand) -> str:
        subagent_id = None if hand.agent_id == self._root else hand.agent_id
        return place_of(self._lease.session_id, subagent_id)

    def _check_ownership(self) -> None:
        if not self._deps.ownership.alive():
            raise OwnershipLost

    # ---- what arrives

    async def _hear(self) -> None:
        """Look at what was accepted for the session."""
        try:
            found = await self._deps.store.read(read_arrivals, self._lease.session_id)
        except BaseException:
            # Nobody has looked: whoever runs the session next must.
            self._arrived.set()
            raise
        if found.cancelled:
            await self._stop([hand for hand in self._hands.values() if hand.agent_id != self._root])
            root = self._hand(self._root)
            root.halt.requested.set()
            self._wake([self._root])
            return
        news, self._known = found != self._known, found
        if found.is_due:
            # Whoever waits for subagents, or for the application, has to see that the time has come.
            self._wake([hand.agent_id for hand in self._hands.values() if hand.task is None])
        elif news and (len(self._hands) > 1 or self._hand(self._root).task is None):
            # A root that has passed its last boundary may not have left yet; alone, it is run again.
            self._wake([self._root])

    async def _stop(self, hands: Iterable[Hand]) -> None:
        """Break off steps, and wait until what they had written is saved, but not for long."""
        tasks = set()
        for hand in hands:
            if hand.task is not None:
                hand.halt.requested.set()
                tasks.add(hand.task)
        if tasks:
            await asyncio.wait(tasks, timeout=STOP_SECONDS)


async def _end(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
