"""Making room: a request that outgrows its model's window gets a note in place of its beginning.

    request too large ─▶ cut behind whole steps ─▶ summary ─▶ record ─▶ request again
                                                     │ ╰─ failed, empty, too long: an outline by rule
                                                     ╰─ or what the provider itself makes of it

It happens between steps, while no call is owed. Items are never touched. A compaction has to shrink the
request; when two in a row do not make it fit, the turn fails and the session stays usable. An asynchronous
one is written beside the turn and applied at a later boundary, to exactly the items that it is about.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perdure.harness.background import Pending, Summary
from perdure.harness.context import build_request, request_tokens
from perdure.harness.conversation import Conversation
from perdure.harness.conversations import place_of
from perdure.harness.cuts import Cut, find_cut, is_request, row_tokens
from perdure.harness.deps import Deps
from perdure.harness.entries import arguments_text
from perdure.harness.excerpts import clip
from perdure.harness.facts import gather_facts, pin_paths, pinned_facts
from perdure.harness.native import NativeCompactor
from perdure.harness.notes import earlier_entry, kept_compaction, note_entries
from perdure.harness.outline import outline
from perdure.harness.ownership import OwnershipLost
from perdure.harness.room import Room
from perdure.harness.summary import Source
from perdure.harness.tokens import entries_tokens, fixed_tokens, text_tokens
from perdure.models.errors import ModelError
from perdure.models.messages import Finished, ModelRequest
from perdure.models.registry import Resolved
from perdure.store.boundary import Boundary, Failure
from perdure.store.compactions import Compaction, read_standing, record_compaction
from perdure.store.rows import CallRow, ItemRow, SubagentRow, TurnRow
from perdure.store.steps import Spent

log = logging.getLogger(__name__)

NOTHING = Spent(None, 0, 0)
MOST_OPEN = 50
SURE = 1.5
"""Before a provider has reported anything, only a request so many times too large is not sent."""
SQUEEZES = 4


@dataclass(frozen=True, slots=True)
class Cancelled:
    """A cancel was accepted first."""


class Compactor:
    """Makes the requests of one step fit. `turn` is the turn as the last compaction left it.

    Args:
        cancelled: returns once a cancel was accepted.
    """

    def __init__(
        self,
        deps: Deps,
        boundary: Boundary,
        turn: TurnRow,
        conversation: Conversation,
        resolved: Resolved,
        cancelled: Callable[[], Awaitable[object]],
    ) -> None:
        self.turn = turn
        # What summaries cost that no compaction was charged with.
        self.unsaved = NOTHING
        self._deps = deps
        self._boundary = boundary
        self._conversation = conversation
        self._resolved = resolved
        self._cancelled = cancelled
        self._room = self._measure_room()
        self.request = self._build()

    async def make_room(self) -> Failure | Cancelled | None:
        """Leave in `request` what can be sent; or say why nothing can be.

        Raises:
            Fenced, OwnershipLost, SessionGone: somebody else took over, or could have.
        """
        room = self._room
        is_async = self._boundary.config.settings.compaction.async_
        pending = self._deps.background.find(self._name, self._conversation)
        if pending is not None and pending.task.done():
            await self._apply_pending(pending)
            pending = None
        if self.size <= (room.begin if is_async else room.trigger):
            return None
        if is_async and pending is None and not self._conversation.beside_failed:
            pending = self._begin_beside()
        if self.size <= room.trigger:
            return None
        if pending is not None:
            if not await self._unless_cancelled(pending.task):
                return Cancelled()
            await self._apply_pending(pending)
            if self.size <= room.trigger:
                return None
        return await self._compact()

    async def make_smaller(self, error: ModelError) -> Failure | Cancelled | None:
        """A smaller `request` after the provider refused one as too large; a failure if there is none."""
        before = self.size
        failure = Failure(error.code, error.message)
        if error.status != 413:
            self._deps.windows.learn(self._resolved, error, before)
        self._conversation.tightness += 1
        self._refresh()
        if error.status == 413 and self.size < before:
            return None
        made = await self._compact()
        if isinstance(made, Cancelled):
            return made
        return None if made is None and self.size < before else failure

    @property
    def size(self) -> int:
        """Tokens of `request`, estimated."""
        return request_tokens(self.request, self._conversation, self._resolved)

    @property
    def result_bytes(self) -> int:
        """How much of one result the model is shown."""
        return self._room.result_bytes

    def learn(self, finished: Finished | None) -> None:
        """Take in how many tokens the provider counted for `request`."""
        if finished is not None and finished.usage is not None:
            estimate = fixed_tokens(self.request) + self._conversation.estimate
            self._conversation.gauge.learn(estimate, finished.usage.input_tokens, self._target)

    @property
    def _target(self) -> tuple[str, str]:
        return self._resolved.provider, self._resolved.upstream

    @property
    def _session_id(self) -> str:
        return self.turn.session_id

    @property
    def _name(self) -> str:
        """Under which name a summary that is written beside the agent's steps is kept."""
        return place_of(self._session_id, self.turn.subagent_id)

    # ---- compacting while the step waits

    async def _compact(self) -> Failure | Cancelled | None:
        by_model = True
        for keep in (self._room.keep, 0):
            cut = self._find_cut(keep)
            if cut is None or cut.tokens < self._room.gain:
                continue
            summary = Summary(None, None, NOTHING)
            if by_model:
                summariser = self._summariser(cut)
                task = asyncio.ensure_future(summariser.run())
                if not await self._unless_cancelled(task):
                    self.unsaved = self.unsaved + summariser.spent
                    return Cancelled()
                summary = task.result()
                by_model = summary.is_written
            await self._apply(cut, summary)
            if self.size <= self._room.trigger:
                return None
        self._squeeze()
        sure = self._conversation.gauge.reported is not None
        if self._room.is_known and self.size > self._room.most * (1 if sure else SURE):
            return Failure(
                "context_length_exceeded",
                f"The request has about {self.size:,} tokens after compaction; the model's window has "
                f"{self._room.window:,}.",
            )
        return None

    def _squeeze(self) -> None:
        """Show less of each result, as far as that helps."""
        for _ in range(SQUEEZES):
            before, tightness = self.size, self._conversation.tightness
            if before <= self._room.trigger:
                return
            self._conversation.tightness = tightness + 1
            self._refresh()
            if self.size >= before:
                self._conversation.tightness = tightness
                self._refresh()
                return

    async def _unless_cancelled(self, task: asyncio.Future[Summary]) -> bool:
        """Wait for a summary; False when a cancel was accepted first, and then it is not written on."""
        watching = asyncio.ensure_future(self._cancelled())
        both: set[asyncio.Future[Any]] = {task, watching}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                watching.result()
            return task.done()
        finally:
            for each in both:
                each.cancel()
            await asyncio.gather(*both, return_exceptions=True)

    # ---- compacting beside the turn

    def _begin_beside(self) -> Pending | None:
        cut = self._find_cut(self._room.keep)
        if cut is None or cut.tokens < self._room.gain:
            return None
        writing = self._summariser(cut).run()
        return self._deps.background.start(self._name, self._conversation, cut.prefix, writing)

    async def _apply_pending(self, pending: Pending) -> None:
        self._deps.background.drop(self._name)
        if not pending.task.done() or pending.task.cancelled():
            return
        error = pending.task.exception()
        if error is not None:
            if isinstance(error, OwnershipLost):
                raise error
            log.warning("writing a summary of session %s failed", self._session_id, exc_info=error)
            return
        summary = pending.task.result()
        if not summary.is_written:
            # While there is room the old view is as good; and nobody is asked again in vain.
            self._conversation.beside_failed = True
            if self.size <= self._room.trigger:
                self.unsaved = self.unsaved + summary.spent
                return
        await self._apply(self._cut_of(pending.prefix), summary)

    # ---- one compaction

    def _find_cut(self, keep: int) -> Cut | None:
        cut = find_cut(self._conversation.rows, self.turn.id, keep, self._room.result_bytes)
        before = self._conversation.compaction
        if cut is None or (before is not None and cut.prefix[-1].pos <= before.through_pos):
            return None
        return cut

    def _cut_of(self, prefix: tuple[ItemRow, ...]) -> Cut:
        """A prefix that was summarised earlier, as it is cut now."""
        carried = tuple(row for row in prefix if is_request(row) and row.turn_id == self.turn.id)
        kept = {row.id for row in carried}
        sizes = (row_tokens(row, self._room.result_bytes) for row in prefix if row.id not in kept)
        return Cut(prefix, carried, sum(sizes))

    def _summariser(self, cut: Cut) -> NativeCompactor:
        conversation, target = self._conversation, self._target
        note = conversation.note(pinned_facts(self._boundary.metadata), self._room.pins, target)
        source = Source(
            cut.prefix,
            note,
            self.turn,
            self.request,
            self._resolved,
            conversation.images_from,
            conversation.gauge.factor_for(target),
        )
        old = conversation.compaction
        earlier = None if old is None else earlier_entry(old, target)
        return NativeCompactor(self._deps, source, earlier, cut.tokens + entries_tokens(note))

    async def _apply(self, cut: Cut, summary: Summary) -> None:
        """Record a compaction, if it shrinks the request, and go on with what it leaves."""
        conversation, room = self._conversation, self._room
        old = conversation.compaction
        pinned = pinned_facts(self._boundary.metadata)
        turns = list(dict.fromkeys(row.turn_id for row in cut.prefix))
        ends, owed = await self._deps.store.read(read_standing, self._session_id, self.turn.agent_id, turns)
        through = cut.prefix[-1].pos
        pins = gather_facts(
            () if old is None else old.pins,
            cut.prefix,
            pin_paths(self._boundary.metadata, self._deps.settings.context.pin_paths),
        )
        compaction = Compaction(
            number=0,
            through_pos=through,
            method="native" if summary.compacted else "trim" if summary.text is None else "summary",
            data=self._data(cut, summary, ends, [call for call in owed if call.pos <= through]),
            pins=pins,
            tokens={},
            model=summary.model,
            dropped=_dropped(cut, None if old is None else old.through_pos),
        )
        gone = cut.tokens + entries_tokens(conversation.note(pinned, room.pins, self._target))
        note = entries_tokens(note_entries(compaction, pinned, room.pins, self._target))
        if note >= gone:
            log.info("a compaction of session %s would not shrink it", self._session_id)
            self.unsaved = self.unsaved + summary.spent
            return
        before = self.size
        after = max(note, before - gone + note)
        tokens = {"before": before, "after": after, "reported": conversation.gauge.reported}
        if not self._deps.ownership.alive():
            raise OwnershipLost
        self.turn, recorded = await self._deps.store.write(
            record_compaction,
            self._boundary.lease,
            self.turn.id,
            replace(compaction, tokens=tokens),
            self.unsaved + summary.spent,
            usage_known=summary.usage_known,
            agent_id=self.turn.agent_id,
        )
        self.unsaved = NOTHING
        conversation.compact(recorded)
        self._boundary = replace(self._boundary, turn=self.turn)
        self._refresh()
        log.info(
            "compacted session %s by %s: %d tokens became %d",
            self._session_id,
            recorded.method,
            before,
            self.size,
        )

    def _data(
        self, cut: Cut, summary: Summary, ends: dict[str, str], owed: Sequence[CallRow]
    ) -> dict[str, Any]:
        old = self._conversation.compaction
        known: dict[str, Any] = {} if old is None else dict(old.data)
        kept = {row.id for row in cut.carried}
        requests = list(known.get("requests", ()))
        for row in cut.prefix:
            if is_request(row) and row.id not in kept:
                said = " ".join(part["text"] for part in row.data["content"] if "text" in part)
                requests.append({"text": clip(said, 160), "status": ends.get(row.turn_id, "completed")})
        shown, left = len(requests), self._room.requests
        while shown and left > 0:
            left -= text_tokens(requests[shown - 1]["text"]) + 5
            shown -= left >= 0
        text = summary.text
        if text is None:
            text = outline(cut.prefix, known.get("summary", ""), self._room.summary)
        native = {} if summary.compacted is None else {"native": kept_compaction(summary.compacted)}
        return native | {
            "summary": text,
            "requests": requests[shown:],
            "earlier": known.get("earlier", 0) + shown,
            "open": [_open(call) for call in owed[-MOST_OPEN:]],
            "subagents": [_described(child) for child in self._boundary.children],
            "carried": [row.pos for row in cut.carried],
        }

    # ---- the request

    def _measure_room(self) -> Room:
        deps = self._deps
        return Room.of(self._resolved, deps.settings, deps.windows, self._conversation.tightness)

    def _build(self) -> ModelRequest:
        return build_request(
            self._boundary, self._conversation, self._resolved, self._deps.settings, self._room
        )

    def _refresh(self) -> None:
        self._room = self._measure_room()
        self.request = self._build()


def _described(child: SubagentRow) -> str:
    """A subagent in one line of the note."""
    return f"'{child.name}' ({child.id}), {child.state}: {clip(child.task, 160)}"


def _open(call: CallRow) -> dict[str, str]:
    return {
        "call_id": call.call_id,
        "name": call.name,
        "arguments": clip(arguments_text(call.arguments), 160),
    }


def _dropped(cut: Cut, before: int | None) -> dict[str, Any]:
    kept = {row.id for row in cut.carried}
    gone = [row for row in cut.prefix if row.id not in kept]
    return {
        "items": len(gone),
        "turns": len({row.turn_id for row in gone}),
        "results": sum(row.type == "function_call_output" for row in gone),
        "behind_pos": before or 0,
        "first_item": gone[0].id,
        "last_item": gone[-1].id,
    }
