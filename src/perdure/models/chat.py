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
from perdure.models.jsontext import Encoded, encode
from perdure.models.messages import Entry, ModelEvent, ModelRequest
from perdure.models.settled import SettledHistories
from perdure.models.transport import Transport
from perdure.models.upstream import Upstream, bearer

# Older servers refuse to be asked for the usage.
OWN_FIELDS = {"stream_options": re.compile(r"stream_options|include_usage")}
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
        # A field of the assistant's messages that is found late changes those before it.
        self._histories: SettledHistories[str | None] = SettledHistories(operator.eq)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        provider = self._upstream.provider
        enforce_schema = self._upstream.settings(request.model).structured_output is not False
        body = build_body(
            request,
            provider.name,
            self._dialect,
            written_messages=self._messages(request, enforce_schema),
            max_output_tokens=self._upstream.max_output_tokens(request.model),
            enforce_schema=enforce_schema,
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
            if error.status in (400, 422) and self._learn(request, error.message):
                error.retryable = True
            raise
        for said in reader.close():
            yield said

    def _messages(self, request: ModelRequest, enforce_schema: bool) -> Encoded:
        rule = self._reasoning.rule(request.model)
        history = self._histories.write(
            (request.cache_key, request.model, rule),
            request,
            REASONING_FIELD if rule == "required" else None,
            lambda *part: self._write(request.model, *part),
        ).json
        first = encode(system_message(request, enforce_schema=enforce_schema))
        return Encoded(first[:-1] + (b"," if len(first) > 2 and len(history) > 2 else b"") + history[1:])

    def _write(
        self, model: str, entries: Sequence[Entry], spelling: str | None
    ) -> tuple[list[dict[str, Any]], str | None]:
        rule = self._reasoning.rule(model)
        writer = MessageWriter(self._upstream.provider.name, model, self._dialect, rule, spelling)
        return writer.write(entries), writer.spelling

    def _learn(self, request: ModelRequest, complaint: str) -> bool:
        fields = {"reasoning_content", "reasoning", "reasoning_details"}
        messages, _ = self._write(request.model, request.entries, None)
        was_sent = any(fields & message.keys() for message in messages)
        return self._reasoning.learn(request.model, complaint, was_sent=was_sent)

    async def close(self) -> None:
        await self._upstream.close()
