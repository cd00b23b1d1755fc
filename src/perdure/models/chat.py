"""The OpenAI Chat Completions protocol, for the many servers that speak it."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from typing import Any

from perdure.config.settings import ProviderSettings
from perdure.models.chat_body import build_body
from perdure.models.chat_dialect import ReasoningRules, dialect_of
from perdure.models.chat_reader import ChatReader
from perdure.models.errors import ModelError
from perdure.models.messages import ModelEvent, ModelRequest
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

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        provider = self._upstream.provider
        body = build_body(
            request,
            provider.name,
            self._dialect,
            reasoning=self._reasoning.rule(request.model),
            max_output_tokens=self._upstream.max_output_tokens(request.model),
            enforce_schema=self._upstream.settings(request.model).structured_output is not False,
        )
        reader = ChatReader(provider, request.model, offers_tools=bool(request.tools))
        try:
            async with self._upstream.post(body) as answer:
                async for batch in answer:
                    for chunk in batch:
                        for said in reader.read(chunk):
                            yield said
                    if reader.is_finished:
                        answer.patience = USAGE_PATIENCE
        except ModelError as error:
            if error.status in (400, 422) and self._learn(request.model, body, error.message):
                error.retryable = True
            raise
        for said in reader.close():
            yield said

    def _learn(self, model: str, body: dict[str, Any], complaint: str) -> bool:
        fields = {"reasoning_content", "reasoning", "reasoning_details"}
        was_sent = any(fields & message.keys() for message in body["messages"])
        return self._reasoning.learn(model, complaint, was_sent=was_sent)

    async def close(self) -> None:
        await self._upstream.close()
