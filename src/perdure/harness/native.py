"""A history as its provider compacts it itself, where the provider can; else a model's summary.

What the provider makes can be read by its own model alone. So it is used only for a history that this
model goes on with, and what other models are shown in its place is an outline by rule.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from perdure.harness.background import Summary
from perdure.harness.beside import CallsBeside, Listener
from perdure.harness.checks import check_request
from perdure.harness.cuts import is_request, row_tokens
from perdure.harness.deps import Deps
from perdure.harness.entries import Shape, Shown, make_entries
from perdure.harness.room import Room
from perdure.harness.summary import Source, Summariser
from perdure.harness.tokens import entries_tokens, fixed_tokens
from perdure.models.errors import ModelError
from perdure.models.messages import CompactedHistory, CompactingModel, ModelRequest, ServerNote
from perdure.store.steps import Spent

log = logging.getLogger(__name__)

WORTH = 0.5
"""A provider's compaction that leaves more than this part of what it replaces is not used."""
MESSAGES = 0.8
"""How much of that the messages of the user may take, which a provider keeps as they are."""


class NativeCompactor:
    """Asks for one compaction, and for a summary where there is none. `run` may be cancelled anywhere.

    Args:
        earlier: what stands in place of older items already, without what is restated anyway.
        replaced: tokens of the items that go, and of the note in their place so far.
    """

    def __init__(self, deps: Deps, source: Source, earlier: ServerNote | None, replaced: int) -> None:
        self._deps = deps
        self._source = source
        self._earlier = earlier
        self._most = int(replaced * WORTH)
        self._room = Room.of(source.resolved, deps.settings, deps.windows)
        # Nothing that others have to charge: each call is settled when it ends.
        self.spent = Spent(None, 0, 0)

    async def run(self) -> Summary:
        """The compaction or the summary, or why there is none in the log.

        Raises:
            OwnershipLost: this process may not call anybody for the session any more.
        """
        source = self._source
        session_id, target = source.turn.session_id, source.resolved
        if self._is_possible():
            try:
                compacted = await self._compact()
            except ModelError as error:
                log.warning("%s did not compact session %s: %s", target.provider, session_id, error.message)
            except TimeoutError:
                log.warning("session %s is not compacted: the turn has no time left", session_id)
            else:
                if compacted.tokens <= self._most:
                    model = {"provider": target.provider, "model": target.upstream}
                    return Summary(None, model, self.spent, compacted=compacted)
                log.info("what %s left of session %s is too large", target.provider, session_id)
        return await Summariser(self._deps, source).run()

    def _is_possible(self) -> bool:
        """Whether the provider compacts, and could make it small: it keeps what the user said as it is."""
        if not self._source.resolved.capabilities.compacts:
            return False
        compacted = None if self._earlier is None else self._earlier.compacted
        kept = 0 if compacted is None else compacted.kept
        said = (row for row in self._source.rows if is_request(row))
        kept += sum(row_tokens(row, self._room.result_bytes) for row in said)
        return kept <= self._most * MESSAGES

    async def _compact(self) -> CompactedHistory:
        model = self._source.resolved.model
        if not isinstance(model, CompactingModel):
            raise ModelError("server_error", "Its protocol has no compaction.")
        request = self._request()
        check_request(request)
        size = fixed_tokens(request) + entries_tokens(request.entries)
        if int(size * self._source.factor) > self._room.most:
            raise ModelError("context_length_exceeded", "The history does not fit into one request.")

        async def read(listener: Listener) -> CompactedHistory:
            compacted, finished = await model.compact(request)
            listener.finish(finished)
            return compacted

        turn, target = self._source.turn, self._source.resolved
        return await CallsBeside(self._deps, turn, target).ask(request, read)

    def _request(self) -> ModelRequest:
        source, room, target = self._source, self._room, self._source.resolved
        shape = Shape(
            target.provider, target.upstream, room.result_bytes, room.shows_images, source.images_from
        )
        entries = make_entries(source.rows, source.turn.id, shape, Shown())
        return replace(
            source.request,
            entries=(*([] if self._earlier is None else [self._earlier]), *entries),
            tools=(),
            output_schema=None,
            summary=None,
            settled=0,
        )
