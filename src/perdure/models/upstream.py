"""A provider as its adapter uses it: address, headers, settings per model, and what models refuse."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import quote

from perdure.config.settings import ModelSettings, ProviderSettings
from perdure.models.errors import ModelError
from perdure.models.transport import Answer, Transport


class Upstream:
    """One endpoint of one provider.

    Args:
        provider: the settings; their `base_url` must be set.
        transport: shared connections; without one the upstream has its own and closes it.
        path: the endpoint below `base_url`, with its leading slash; `{model}` in it is the model's.
        headers: what the protocol needs in every request, the credentials among them.
        own_fields: fields of the body that we add for our own good, each with the words by which a
            provider refuses it. A model that refused one gets its next requests without it.
    """

    def __init__(
        self,
        provider: ProviderSettings,
        transport: Transport | None,
        path: str,
        headers: Mapping[str, str],
        own_fields: Mapping[str, re.Pattern[str]],
    ) -> None:
        self.provider = provider
        self._transport = transport or Transport()
        self._owns_transport = transport is None
        self._url = f"{(provider.base_url or '').rstrip('/')}{path}"
        self._headers = headers
        self._own_fields = own_fields
        self._refused: dict[str, frozenset[str]] = {}
        self._models = {settings.upstream or name: settings for name, settings in provider.model.items()}

    def settings(self, model: str) -> ModelSettings:
        """The settings of a model by its upstream name, with nothing set where there are none."""
        return self._models.get(model, _UNSET)

    def max_output_tokens(self, model: str) -> int | None:
        return self.settings(model).max_output_tokens or self.provider.max_output_tokens

    @contextlib.asynccontextmanager
    async def post(
        self, body: dict[str, Any], *, model: str | None = None, below: str | None = None
    ) -> AsyncIterator[Answer]:
        """Send a request for `body["model"]`, or for the `model` that is part of the address.

        `below` is the rest of the address of an endpoint below this one, whose answers are not streamed.
        See `Transport.post`.
        """
        url = self._url if model is None else self._url.replace("{model}", quote(model))
        headers = self._headers
        if below is not None:
            url, headers = f"{url}{below}", {**headers, "Accept": "application/json"}
        model = model or body["model"]
        refused = self._refused.get(model, frozenset())
        body = {key: value for key, value in body.items() if key not in refused}
        try:
            async with self._transport.post(self.provider, url, headers, body) as answer:
                yield answer
        except ModelError as error:
            if error.status in (400, 422) and (fields := self._fields_named(body, error.message)):
                self._refused[model] = refused | fields
                error.retryable = True
            raise

    async def close(self) -> None:
        if self._owns_transport:
            await self._transport.close()

    def _fields_named(self, body: Mapping[str, Any], message: str) -> frozenset[str]:
        return frozenset(
            field for field, words in self._own_fields.items() if field in body and words.search(message)
        )


_UNSET = ModelSettings.model_validate({})


def bearer(provider: ProviderSettings) -> dict[str, str]:
    """The header that carries the provider's key, if it has one."""
    if provider.api_key is None:
        return {}
    return {"Authorization": f"Bearer {provider.api_key.get_secret_value()}"}
