"""The Gemini protocol: Google's Generative Language API and servers that imitate it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from perdure.config.settings import ProviderSettings
from perdure.models.errors import ModelError
from perdure.models.gemini_body import build_body
from perdure.models.gemini_contents import ContentWriter, settled_steps, to_be_answered
from perdure.models.gemini_lessons import Lessons
from perdure.models.gemini_reader import GeminiReader
from perdure.models.images import ImageLessons
from perdure.models.jsontext import Encoded
from perdure.models.messages import Entry, ModelEvent, ModelRequest
from perdure.models.offered import Offered, OfferLessons, OfferRules
from perdure.models.output_lessons import OutputLessons
from perdure.models.settled import SettledHistories
from perdure.models.transport import Transport
from perdure.models.upstream import Upstream

VERSION = "/v1beta"
ENDPOINT = "/{model}:streamGenerateContent?alt=sse"
USAGE_PATIENCE = 15.0


class GeminiModel:
    """One provider behind `POST {base_url}/models/{model}:streamGenerateContent`.

    Texts stream; whole outputs and calls are yielded last, when the answer is known to be complete.
    Messages have no phase in this protocol. What the name of a model does not tell about it is learnt
    from its first refusal; that failure is retryable.
    """

    def __init__(self, provider: ProviderSettings, transport: Transport | None = None) -> None:
        self._upstream = Upstream(provider, transport, _path(provider), _key(provider), {})
        self._lessons = Lessons()
        self._images = ImageLessons()
        # What its schemas cannot say at their root is said elsewhere.
        self._outputs = OutputLessons()
        self._offers = OfferLessons(OfferRules(leading_letter=True, plain_root=False))
        # The state is whether anything was written.
        self._histories: SettledHistories[bool] = SettledHistories()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        provider, settings = self._upstream.provider, self._upstream.settings(request.model)
        offered = self._offers.offer(request)
        body = build_body(
            request,
            self._contents(request, offered),
            self._lessons.rules(request.model),
            offered,
            max_output_tokens=self._upstream.max_output_tokens(request.model),
            enforce_schema=settings.structured_output is not False and self._outputs.takes(request),
            parallel_calls=settings.parallel_calls is not False,
        )
        reader = GeminiReader(provider, request.model)
        try:
            async with self._upstream.post(body, model=_resource(request.model)) as answer:
                async for batch in answer:
                    for chunk in batch:
                        for said in reader.read(chunk):
                            yield said
                    if reader.is_finished:
                        answer.patience = USAGE_PATIENCE
            for said in reader.close():
                yield offered.ours(said)
        except ModelError as error:
            if self._learn(request, offered, body, error):
                error.retryable = True
            raise

    def _contents(self, request: ModelRequest, offered: Offered) -> Encoded:
        rules = self._lessons.rules(request.model)
        entries = to_be_answered(request.entries)
        return self._histories.write(
            (request.cache_key, request.model, rules, offered.changed),
            replace(request, entries=entries, settled=settled_steps(entries, request.settled)),
            False,
            lambda part, begun: (
                self._write(request.model, offered, part, begun=begun),
                begun or bool(part),
            ),
        )

    def _write(
        self, model: str, offered: Offered, entries: Sequence[Entry], *, begun: bool
    ) -> list[dict[str, Any]]:
        rules, refused = self._lessons.rules(model), self._lessons.refused
        writer = ContentWriter(
            self._upstream.provider.name, model, rules, offered, refused, begun=begun, images=self._images
        )
        return writer.write(entries)

    def _learn(
        self, request: ModelRequest, offered: Offered, body: Mapping[str, Any], error: ModelError
    ) -> bool:
        contents = self._write(request.model, offered, request.entries, begun=False)
        learnt = (
            self._lessons.learn(request.model, body, contents, error.message)
            or (error.status in (400, 422) and self._learn_shapes(request, error.message))
            or self._images.learn(request, lambda: contents, error)
        )
        if learnt:
            # What was written may hold what is refused.
            self._histories = SettledHistories()
        return learnt

    def _learn_shapes(self, request: ModelRequest, complaint: str) -> bool:
        return self._outputs.learn(request, complaint) or self._offers.learn(request, complaint)

    async def close(self) -> None:
        await self._upstream.close()


def _path(provider: ProviderSettings) -> str:
    """The endpoint; an address without a path lacks the version, which the vendor's own clients add."""
    return ENDPOINT if urlsplit(provider.base_url or "").path.strip("/") else VERSION + ENDPOINT


def _resource(model: str) -> str:
    """The name of a model as a path: `models/…` unless it names another collection."""
    return model if "/" in model else f"models/{model}"


def _key(provider: ProviderSettings) -> Mapping[str, str]:
    if provider.api_key is None:
        return {}
    return {"x-goog-api-key": provider.api_key.get_secret_value()}
