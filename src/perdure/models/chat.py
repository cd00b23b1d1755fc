"""The OpenAI Chat Completions protocol, for the many servers that speak it."""

from __future__ import annotations

import operator
import re
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from perdure.config.settings import ProviderSettings
from perdure.models.chat_body import REASONING_FIELD, MessageWriter, build_body, system_message
from perdure.models.chat_dialect import ReasoningRules, dialect_of
from perdure.models.chat_reader import ChatReader
from perdure.models.errors import ModelError
from perdure.models.images import ImageLessons
from perdure.models.jsontext import Encoded, encode
from perdure.models.messages import Entry, ModelEvent, ModelRequest
from perdure.models.offered import Offered, OfferLessons, OfferRules
from perdure.models.output_lessons import OutputLessons
from perdure.models.settled import SettledHistories
from perdure.models.transport import Transport
from perdure.models.upstream import Upstream, bearer

# Older servers refuse to be asked for the usage.
OWN_FIELDS = {
    "stream_options": re.compile(r"stream_options|include_usage"),
    # So do models that never make several calls at once.
    "parallel_tool_calls": re.compile("parallel_tool_calls"),
}
USAGE_PATIENCE = 5.0


class ChatModel:
    """One provider behind `POST {base_url}/chat/completions`.

    Texts stream; whole outputs and calls are yielded last, when the answer is known to be complete.
    Messages have no phase in this protocol. What a model wants of earlier reasoning is learnt from its
    first refusal; that failure is retryable.
    """

    def __init__(self, provider: ProviderSettings, transport: Transport | None = None) -> None:
        self._upstream = Upstream(provider, transport, "/chat/completions", bearer(provider), OWN_FIELDS)
        self._dialect = dialect_of(provider.base_url)
        self._reasoning = ReasoningRules()
        self._images = ImageLessons()
        self._outputs = OutputLessons()
        self._offers = OfferLessons(OfferRules())
        # A field of the assistant's messages that is found late changes those before it.
        self._histories: SettledHistories[str | None] = SettledHistories(operator.eq)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        provider, settings = self._upstream.provider, self._upstream.settings(request.model)
        enforce_schema = settings.structured_output is not False and self._outputs.takes(request)
        offered = self._offers.offer(request)
        body = build_body(
            request,
            provider.name,
            self._dialect,
            written_messages=self._messages(request, offered, enforce_schema),
            offered=offered,
            max_output_tokens=self._upstream.max_output_tokens(request.model),
            enforce_schema=enforce_schema,
            parallel_calls=settings.parallel_calls is not False,
        )
        reader = ChatReader(provider, request.model)
        try:
            async with self._upstream.post(body) as answer:
                async for batch in answer:
                    for chunk in batch:
                        for said in reader.read(chunk):
                            yield said
                    if reader.is_finished:
                        answer.patience = USAGE_PATIENCE
        except ModelError as error:
            if error.status in (400, 422) and self._learn(request, offered, error):
                error.retryable = True
            raise
        for said in reader.close():
            yield offered.ours(said)

    def _messages(self, request: ModelRequest, offered: Offered, enforce_schema: bool) -> Encoded:
        rule = self._reasoning.rule(request.model)
        history = self._histories.write(
            (request.cache_key, request.model, rule, offered.changed),
            request,
            REASONING_FIELD if rule == "required" else None,
            lambda *part: self._write(request.model, offered, *part),
        ).json
        first = encode(system_message(request, enforce_schema=enforce_schema))
        return Encoded(first[:-1] + (b"," if len(first) > 2 and len(history) > 2 else b"") + history[1:])

    def _write(
        self, model: str, offered: Offered, entries: Sequence[Entry], spelling: str | None
    ) -> tuple[list[dict[str, Any]], str | None]:
        writer = MessageWriter(
            self._upstream.provider.name,
            model,
            self._dialect,
            self._reasoning.rule(model),
            spelling,
            offered=offered,
            images=self._images,
            parallel_calls=self._upstream.settings(model).parallel_calls is not False,
        )
        return writer.write(entries), writer.spelling

    def _learn(self, request: ModelRequest, offered: Offered, error: ModelError) -> bool:
        """Take a refused request into account; whether the next one will be different."""
        fields = {"reasoning_content", "reasoning", "reasoning_details"}

        def written() -> list[dict[str, Any]]:
            history, _ = self._write(request.model, offered, request.entries, None)
            # Only their number counts here: places are told with the instructions in front.
            return [*system_message(request, enforce_schema=True), *history]

        was_sent = any(fields & message.keys() for message in written())
        if self._reasoning.learn(request.model, error.message, was_sent=was_sent):
            return True
        if self._learn_shapes(request, error.message):
            return True
        learnt = self._images.learn(request, written, error)
        if learnt:
            self._histories = SettledHistories(operator.eq)
        return learnt

    def _learn_shapes(self, request: ModelRequest, complaint: str) -> bool:
        return self._outputs.learn(request, complaint) or self._offers.learn(request, complaint)

    async def close(self) -> None:
        await self._upstream.close()
