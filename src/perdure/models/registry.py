"""Which provider serves a model name, and the adapter that talks to it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import assert_never

from perdure.config.settings import ModelSettings, ProviderSettings, Settings
from perdure.models.capabilities import capabilities_of
from perdure.models.messages import Capabilities, Model


class UnknownModel(Exception):
    """No configured provider serves `name`; the message lists the providers and what they serve."""

    def __init__(self, name: str, providers: tuple[ProviderSettings, ...]) -> None:
        served = "; ".join(
            f"{provider.name} serves {', '.join(_names_of(provider))}" for provider in providers
        )
        super().__init__(f"No provider serves the model {name!r}. {served or 'No provider is configured'}.")
        self.name = name


@dataclass(frozen=True, slots=True)
class Resolved:
    """Where calls of one model name go: `upstream` is the name that `ModelRequest.model` must carry."""

    model: Model
    provider: str
    upstream: str
    capabilities: Capabilities


class Registry:
    """The configured providers, in order, with one adapter each.

    Network adapters are imported and made at their first use; scripted ones are made here, so that a
    mistake in a script is found at the start. Raises `ScriptError`.
    """

    def __init__(self, settings: Settings) -> None:
        self._providers = settings.providers
        self._adapters = {
            provider.name: _connect(provider)
            for provider in self._providers
            if provider.protocol == "scripted"
        }

    def resolve(self, name: str) -> Resolved:
        """Find the provider of a model name.

        `provider/rest` goes to the provider of that name, whatever its patterns, with `rest` as the model;
        any other name goes to the first provider that lists it under `model` or matches it with a pattern.
        Raises `UnknownModel`.
        """
        found = self._find(name)
        if found is None:
            raise UnknownModel(name, self._providers)
        provider, model = found
        overrides = provider.model.get(model, ModelSettings())
        adapter = self._adapters.get(provider.name)
        if adapter is None:
            adapter = self._adapters[provider.name] = _connect(provider)
        return Resolved(
            model=adapter,
            provider=provider.name,
            upstream=overrides.upstream or model,
            capabilities=capabilities_of(provider, overrides, overrides.upstream or model),
        )

    def knows(self, name: str) -> bool:
        return self._find(name) is not None

    async def close(self) -> None:
        """Close every adapter. A later `resolve` of a network provider makes a new one."""
        adapters = list(self._adapters.values())
        for provider in self._providers:
            if provider.protocol != "scripted":
                self._adapters.pop(provider.name, None)
        async with asyncio.TaskGroup() as group:
            for adapter in adapters:
                group.create_task(adapter.close())

    def _find(self, name: str) -> tuple[ProviderSettings, str] | None:
        prefix, separator, rest = name.partition("/")
        if separator and rest:
            for provider in self._providers:
                if provider.name == prefix:
                    return provider, rest
        for provider in self._providers:
            if name in provider.model or provider.serves(name):
                return provider, name
        return None


def _connect(provider: ProviderSettings) -> Model:
    # Imported here: the network adapters load an HTTP client that a scripted server never needs.
    match provider.protocol:
        case "responses":
            from perdure.models.responses import ResponsesModel

            return ResponsesModel(provider)
        case "chat":
            from perdure.models.chat import ChatModel

            return ChatModel(provider)
        case "anthropic":
            from perdure.models.anthropic import AnthropicModel

            return AnthropicModel(provider)
        case "gemini":
            from perdure.models.gemini import GeminiModel

            return GeminiModel(provider)
        case "scripted":
            from perdure.models.scripted import ScriptedModel

            return ScriptedModel(provider)
    assert_never(provider.protocol)


def _names_of(provider: ProviderSettings) -> list[str]:
    return list(dict.fromkeys([*provider.models, *provider.model]))
