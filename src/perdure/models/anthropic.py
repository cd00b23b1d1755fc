"""The Anthropic Messages protocol, for Claude and every server that speaks it."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from dataclasses import replace

from perdure.config.providers import ANTHROPIC_VERSION
from perdure.config.settings import ProviderSettings
from perdure.models.anthropic_body import OFFERS, History, build_body
from perdure.models.anthropic_messages import THINKING, thought_id
from perdure.models.anthropic_models import Family, family_of
from perdure.models.anthropic_reader import AnthropicReader
from perdure.models.errors import ModelError
from perdure.models.messages import ModelEvent, ModelRequest
from perdure.models.offered import Offered, OfferLessons
from perdure.models.output_lessons import OutputLessons
from perdure.models.settled import SettledHistories
from perdure.models.transport import Transport
from perdure.models.upstream import Upstream

# After a change of what stands before a thought, of keys or of models: it is not taken back.
_THOUGHT_REFUSED = re.compile(r"`?signature`?\b.{0,40}\bthinking|redacted_thinking|`thinking`", re.IGNORECASE)
_CACHE_REFUSED = re.compile("cache_control", re.IGNORECASE)
_LIMIT_REFUSED = re.compile(r"max_tokens: \d+ > (\d+)")
MOST_REFUSED = 100_000


class AnthropicModel:
    """One provider behind `POST {base_url}/messages`.

    Texts and thinking stream; calls are yielded last, when the answer is known to be complete. What a
    provider refuses of what we add for its own good (its thinking of the past, cache breakpoints, the
    largest answer) is learnt from its first refusal; that failure is retryable.
    """

    def __init__(self, provider: ProviderSettings, transport: Transport | None = None) -> None:
        headers = {"anthropic-version": ANTHROPIC_VERSION}
        if provider.api_key is not None:
            headers["x-api-key"] = provider.api_key.get_secret_value()
        self._upstream = Upstream(provider, transport, "/messages", headers, {})
        self._refused: set[str] = set()
        self._history = History(provider.name, self._refused)
        self._outputs = OutputLessons()
        self._offers = OfferLessons(OFFERS)
        self._uncached: set[str] = set()
        self._limits: dict[str, int] = {}

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        provider, family = self._upstream.provider, family_of(request.model)
        settings = self._upstream.settings(request.model)
        enforces = settings.structured_output
        offered = self._offers.offer(request)
        body = build_body(
            request,
            self._history,
            offered,
            family,
            max_tokens=self._max_tokens(request.model, family),
            enforce_schema=(family.output_format if enforces is None else enforces)
            and self._outputs.takes(request),
            parallel_calls=settings.parallel_calls is not False,
            cached=request.model not in self._uncached,
        )
        reader = AnthropicReader(provider, request.model)
        try:
            async with self._upstream.post(body) as answer:
                async for batch in answer:
                    for event in batch:
                        for said in reader.read(event):
                            yield said
                    if reader.is_finished:
                        break
        except ModelError as error:
            if error.status in (400, 422) and self._learn(request, offered, body["max_tokens"], error):
                error.retryable = True
            raise
        for said in reader.close():
            yield offered.ours(said)

    def _max_tokens(self, model: str, family: Family) -> int:
        wanted = self._upstream.max_output_tokens(model) or family.max_output_tokens
        return min(wanted, self._limits.get(model, wanted))

    def _learn(self, request: ModelRequest, offered: Offered, max_tokens: int, error: ModelError) -> bool:
        """Take a refused request into account; whether the next one will be different."""
        model, complaint = request.model, error.message
        if found := _LIMIT_REFUSED.search(complaint):
            limit = int(found[1])
            if not 0 < limit < max_tokens:
                return False
            self._limits[model] = limit
            return True
        if _CACHE_REFUSED.search(complaint) and model not in self._uncached:
            self._uncached.add(model)
            return True
        if self._learn_shapes(request, complaint):
            return True
        if _THOUGHT_REFUSED.search(complaint):
            learnt = self._refuse_thoughts(request, offered)
        else:
            learnt = self._history.images.learn(request, lambda: self._history.whole(request, offered), error)
        if learnt:
            # What was written may hold what is refused.
            self._history = replace(self._history, settled=SettledHistories())
        return learnt

    def _refuse_thoughts(self, request: ModelRequest, offered: Offered) -> bool:
        """Remember all thinking of a request as refused; whether there was any.

        Leaving out one thought makes those after it invalid too.
        """
        messages = self._history.whole(request, offered)
        blocks = (block for message in messages for block in message["content"])
        ids = {thought_id(block) for block in blocks if block["type"] in THINKING}
        if len(self._refused) > MOST_REFUSED:
            self._refused.clear()
        self._refused |= ids
        return bool(ids)

    def _learn_shapes(self, request: ModelRequest, complaint: str) -> bool:
        return self._outputs.learn(request, complaint) or self._offers.learn(request, complaint)

    async def close(self) -> None:
        await self._upstream.close()
