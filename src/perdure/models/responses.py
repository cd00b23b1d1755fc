"""The OpenAI Responses protocol, for OpenAI and every server that speaks it."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from perdure.config.settings import ProviderSettings
from perdure.models.errors import ModelError
from perdure.models.images import ImageLessons
from perdure.models.messages import CompactedHistory, Entry, Finished, ModelEvent, ModelRequest
from perdure.models.offered import Offered, OfferLessons, OfferRules
from perdure.models.output_lessons import OutputLessons
from perdure.models.responses_body import InputWriter, build_body
from perdure.models.responses_compaction import BELOW, compact_body, read_compaction
from perdure.models.responses_reader import ResponseReader
from perdure.models.settled import SettledHistories
from perdure.models.transport import Transport
from perdure.models.upstream import Upstream, bearer

OWN_FIELDS = {
    # Models without reasoning refuse to encrypt what they do not have.
    "include": re.compile(r"encrypted content is not supported|param: include", re.IGNORECASE),
    "prompt_cache_key": re.compile("prompt_cache_key"),
    # Models that never make several calls at once do not know the wish.
    "parallel_tool_calls": re.compile("parallel_tool_calls"),
}
# Items of its own that a provider no longer reads: after a change of keys, or kept nowhere.
ITEMS_REFUSED = re.compile(
    r"encrypted content for item|required following item|required '?reasoning'? item"
    r"|item with id \S+ not found|encrypted content \S+ could not be verified",
    re.IGNORECASE,
)
MOST_REFUSED = 100_000


class ResponsesModel:
    """One provider behind `POST {base_url}/responses`.

    Nothing is kept at the provider: every request carries the whole context, and reasoning comes back
    encrypted. Calls are yielded last, when the answer is known to be complete. A provider that refuses
    its own items of the past gets the next request without their ids and reasoning; that failure is
    retryable.
    """

    def __init__(self, provider: ProviderSettings, transport: Transport | None = None) -> None:
        self._upstream = Upstream(provider, transport, "/responses", bearer(provider), OWN_FIELDS)
        self._refused: set[str] = set()
        self._images = ImageLessons()
        self._outputs = OutputLessons()
        self._offers = OfferLessons(OfferRules())
        self._histories: SettledHistories[frozenset[str]] = SettledHistories()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        provider, settings = self._upstream.provider, self._upstream.settings(request.model)
        offered = self._offers.offer(request)
        body = build_body(
            request,
            provider.name,
            written_input=self._histories.write(
                (request.cache_key, request.model, offered.changed),
                request,
                frozenset(),
                lambda part, sent: self._write(request.model, part, sent, offered),
            ),
            offered=offered,
            max_output_tokens=self._upstream.max_output_tokens(request.model),
            enforce_schema=settings.structured_output is not False and self._outputs.takes(request),
            parallel_calls=settings.parallel_calls is not False,
        )
        reader = ResponseReader(provider, request.model)
        try:
            async with self._upstream.post(body) as answer:
                async for batch in answer:
                    for event in batch:
                        for said in reader.read(event):
                            yield said
                    if reader.is_finished:
                        break
        except ModelError as error:
            if self._learn(request, offered, error):
                error.retryable = True
            raise
        for said in reader.close():
            yield offered.ours(said)

    async def compact(self, request: ModelRequest) -> tuple[CompactedHistory, Finished]:
        """The provider's own compaction of the request's entries, and what it took.

        Raises:
            ModelError: there is none; as `stream` raises it.
        """
        entries, _ = self._write(request.model, request.entries, frozenset())
        try:
            async with self._upstream.post(compact_body(request, entries), below=BELOW) as answer:
                found = [said async for batch in answer for said in batch]
        except ModelError as error:
            if ITEMS_REFUSED.search(error.message) and self._refuse_items(request):
                error.retryable = True
            raise
        return read_compaction(self._upstream.provider, request.model, found[0] if found else None)

    def _write(
        self,
        model: str,
        entries: Sequence[Entry],
        sent: frozenset[str],
        offered: Offered | None = None,
    ) -> tuple[list[dict[str, Any]], frozenset[str]]:
        provider = self._upstream.provider.name
        writer = InputWriter(provider, model, self._refused, sent, offered=offered, images=self._images)
        return writer.write(entries), frozenset(writer.sent)

    def _learn(self, request: ModelRequest, offered: Offered, error: ModelError) -> bool:
        """Take a refused request into account; whether the next one will be different."""
        if ITEMS_REFUSED.search(error.message):
            return self._refuse_items(request)
        if error.status not in (400, 422):
            return False
        if self._learn_shapes(request, error.message):
            return True
        learnt = self._images.learn(
            request, lambda: self._write(request.model, request.entries, frozenset(), offered)[0], error
        )
        if learnt:
            self._histories = SettledHistories()
        return learnt

    def _refuse_items(self, request: ModelRequest) -> bool:
        """Remember the provider's own items of a request as refused; whether there were any."""
        _, ids = self._write(request.model, request.entries, frozenset())
        if len(self._refused) > MOST_REFUSED:
            self._refused.clear()
        self._refused |= ids
        # What was written names them.
        self._histories = SettledHistories()
        return bool(ids)

    def _learn_shapes(self, request: ModelRequest, complaint: str) -> bool:
        return self._outputs.learn(request, complaint) or self._offers.learn(request, complaint)

    async def close(self) -> None:
        await self._upstream.close()
