"""The OpenAI Responses protocol, for OpenAI and every server that speaks it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

from perdure.config.settings import ProviderSettings
from perdure.models.messages import ModelEvent, ModelRequest
from perdure.models.responses_body import build_body
from perdure.models.responses_reader import ResponseReader
from perdure.models.transport import Transport
from perdure.models.upstream import Upstream, bearer

OWN_FIELDS = {
    # Models without reasoning refuse to encrypt what they do not have.
    "include": re.compile(r"encrypted[ _]content|param: include", re.IGNORECASE),
    "prompt_cache_key": re.compile("prompt_cache_key"),
}


class ResponsesModel:
    """One provider behind `POST {base_url}/responses`.

    Nothing is kept at the provider: every request carries the whole context, and reasoning comes back
    encrypted. Calls are yielded last, when the answer is known to be complete.
    """

    def __init__(self, provider: ProviderSettings, transport: Transport | None = None) -> None:
        self._upstream = Upstream(provider, transport, "/responses", bearer(provider), OWN_FIELDS)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        provider = self._upstream.provider
        body = build_body(
            request,
            provider.name,
            max_output_tokens=self._upstream.max_output_tokens(request.model),
            enforce_schema=self._upstream.settings(request.model).structured_output is not False,
        )
        reader = ResponseReader(provider, request.model)
        async with self._upstream.post(body) as answer:
            async for batch in answer:
                for event in batch:
                    for said in reader.read(event):
                        yield said
                if reader.is_finished:
                    break
        for said in reader.close():
            yield said

    async def close(self) -> None:
        await self._upstream.close()
