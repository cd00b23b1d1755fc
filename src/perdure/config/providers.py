"""Model providers: one `[[provider]]` table each, or what the usual environment variables say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationInfo, field_validator

from perdure.config.problems import Form
from perdure.config.sections import Seconds, Section, check_http_url, check_key

Protocol = Literal["responses", "chat", "anthropic", "gemini", "scripted"]
EffortName = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]

BASE_URLS: Mapping[str, str] = {
    "responses": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com/v1",
    "gemini": "https://generativelanguage.googleapis.com/v1beta",
}
"""The address of a protocol's own provider; `chat` has none, so it must always be named."""

ANTHROPIC_VERSION = "2026-10-21"
"""The version of the API that the `anthropic` protocol is written for."""

OPENAI_MODELS = ("gpt-*", "o[0-9]*", "chatgpt-*", "codex-*", "ft:*")


HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
HEADER_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")


class ModelSettings(Section):
    """`[provider.model."name"]`: what differs for one model of a provider."""

    upstream: str | None = Field(None, min_length=1)
    """Name sent to the provider; unset means the name the agent uses."""
    context_window: int | None = Field(None, ge=1)
    """Tokens the model can read and write together."""
    max_output_tokens: int | None = Field(None, ge=1)
    """Most tokens of one answer."""
    efforts: tuple[EffortName, ...] | None = None
    """Reasoning efforts the model accepts."""
    images: bool | None = None
    """Whether the model reads images."""
    structured_output: bool | None = None
    """Whether the provider itself can hold the model to an output schema."""
    parallel_calls: bool | None = None
    """Whether the model may make several calls in one answer; `false` asks for one at a time."""


class ProviderSettings(Section):
    """One model provider; `models` are patterns, and the first provider that matches serves a name."""

    name: Annotated[str, Form("lower-case letters, digits, _ and -, at most 64 of them")] = Field(
        pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$"
    )
    """Lower-case letters, digits, `_` and `-`; unique."""
    protocol: Protocol
    """What the provider speaks."""
    base_url: str | None = Field(None, validate_default=True)
    """Address of the provider's API up to and including the version; required for `chat`."""
    api_key: SecretStr | None = Field(None, repr=False)
    """The key itself. Prefer `api_key_env`."""
    api_key_env: Annotated[str | None, Form("the name of an environment variable")] = Field(
        None, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$"
    )
    """Environment variable that holds the key."""
    models: tuple[str, ...] = ("*",)
    """Model names served, with `*`, `?` and `[…]` as wildcards."""
    context_window: int | None = Field(None, ge=1)
    """Tokens its models can read and write together, where `model` does not say otherwise."""
    max_output_tokens: int | None = Field(None, ge=1)
    """Most tokens of one answer, where `model` does not say otherwise."""
    model: dict[str, ModelSettings] = Field(default_factory=dict)
    """Overrides by model name."""
    compaction: Literal["native", "summary"] | None = None
    """How histories of its models are compacted; unset means `native` at OpenAI's own API only."""
    script: Path | None = None
    """Script file of a `scripted` provider."""
    headers: dict[str, str] = Field(default_factory=dict, repr=False)
    """Headers added to every request; their values are treated as secrets."""
    timeout: Seconds = Field(600.0, gt=0, le=86_400)
    """Longest silence of an answer."""
    connect_timeout: Seconds = Field(10.0, gt=0, le=3600)
    """Longest wait for a connection."""

    @field_validator("base_url")
    @classmethod
    def _check_base_url(cls, value: str | None, info: ValidationInfo) -> str | None:
        protocol = info.data.get("protocol")
        if value is None and protocol == "chat":
            raise ValueError(
                'is required for protocol = "chat"; allowed: such as "http://127.0.0.1:11434/v1"'
            )
        if value is not None and protocol == "scripted":
            raise ValueError("is given for a scripted provider; allowed: nothing, it calls nobody")
        return None if value is None else check_http_url(value)

    @field_validator("api_key")
    @classmethod
    def _check_api_key(cls, value: SecretStr | None) -> SecretStr | None:
        return value if value is None else check_key(value)

    @field_validator("headers")
    @classmethod
    def _check_headers(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if not HEADER_NAME.fullmatch(name) or not HEADER_VALUE.fullmatch(text):
                raise ValueError(
                    f"{name!r} is no usable header; allowed: a name and one line of printable ASCII"
                )
        return value

    @field_validator("models")
    @classmethod
    def _check_models(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value or not all(pattern.strip() for pattern in value):
            raise ValueError("is empty; allowed: at least one model name or pattern, none of them empty")
        return value

    @field_validator("compaction")
    @classmethod
    def _check_compaction(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value == "native" and info.data.get("protocol", "responses") != "responses":
            raise ValueError('is "native" for another protocol; allowed: only with protocol = "responses"')
        return value

    @field_validator("script")
    @classmethod
    def _check_script(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        if value is not None and info.data.get("protocol", "scripted") != "scripted":
            raise ValueError('is given for another protocol; allowed: only with protocol = "scripted"')
        return value

    @property
    def key_is_missing(self) -> bool:
        """True when `api_key_env` names a variable that is not set."""
        return self.api_key_env is not None and self.api_key is None

    @property
    def compacts(self) -> bool:
        """Whether the provider is asked for its own compaction: `POST {base_url}/responses/compact`."""
        if self.protocol != "responses" or self.compaction is not None:
            return self.compaction == "native"
        return _is_openai(self.base_url or BASE_URLS["responses"])

    def serves(self, model: str) -> bool:
        """Whether one of the patterns matches the model name, in its exact case."""
        return any(fnmatchcase(model, pattern) for pattern in self.models)


def providers_from_environment(environ: Mapping[str, str]) -> list[dict[str, Any]]:
    """Provider tables from the usual variables, in the order of their documentation."""
    tables: list[dict[str, Any]] = []
    if environ.get("OPENAI_API_KEY"):
        base_url = environ.get("OPENAI_BASE_URL") or BASE_URLS["responses"]
        official = _is_openai(base_url)
        tables.append(
            {
                "name": "openai",
                # Few servers that imitate OpenAI speak the Responses protocol; all speak Chat Completions.
                "protocol": "responses" if official else "chat",
                "base_url": base_url,
                "api_key_env": "OPENAI_API_KEY",
                "models": list(OPENAI_MODELS) if official else ["*"],
            }
        )
    if environ.get("ANTHROPIC_API_KEY"):
        tables.append(
            {
                "name": "anthropic",
                "protocol": "anthropic",
                "base_url": _versioned(environ.get("ANTHROPIC_BASE_URL") or BASE_URLS["anthropic"]),
                "api_key_env": "ANTHROPIC_API_KEY",
                "models": ["claude-*"],
            }
        )
    if environ.get("GEMINI_API_KEY"):
        tables.append(
            {
                "name": "gemini",
                "protocol": "gemini",
                "api_key_env": "GEMINI_API_KEY",
                "models": ["gemini-*"],
            }
        )
    if environ.get("OPENROUTER_API_KEY"):
        tables.append(
            {
                "name": "openrouter",
                "protocol": "chat",
                "base_url": "https://openrouter.ai/api/v1",
                "api_key_env": "OPENROUTER_API_KEY",
                "models": ["*/*"],
            }
        )
    if environ.get("OLLAMA_HOST"):
        tables.append(
            {
                "name": "ollama",
                "protocol": "chat",
                "base_url": ollama_url(environ["OLLAMA_HOST"]),
                "models": ["*"],
            }
        )
    return tables


def _versioned(url: str) -> str:
    """The address with its version, which `ANTHROPIC_BASE_URL` usually leaves out."""
    url = url.rstrip("/")
    return url if re.search(r"/v\d+$", url) else f"{url}/v1"


def ollama_url(host: str) -> str:
    """The Chat Completions address of an `OLLAMA_HOST`, which may lack scheme and port or say 0.0.0.0."""
    host = host.strip().rstrip("/")
    port_if_unsaid = "" if "://" in host else ":11434"
    try:
        url = urlsplit(host if "://" in host else f"http://{host}")
        port = f":{url.port}" if url.port is not None else port_if_unsaid
    except ValueError:
        return host
    name = url.hostname or "127.0.0.1"
    # The same variable tells the Ollama server where to listen; nobody can connect to "everywhere".
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(name, name)
    return f"{url.scheme}://{f'[{name}]' if ':' in name else name}{port}{url.path.rstrip('/')}/v1"


def place_scripted(tables: list[Any]) -> list[Any]:
    """The tables with the built-in scripted provider, before the first catch-all that would take its name."""
    present = [table for table in tables if isinstance(table, dict)]
    if any(table.get("name") == "scripted" for table in present):
        return tables
    position = next((i for i, table in enumerate(tables) if _catches_scripted(table)), len(tables))
    built_in = {"name": "scripted", "protocol": "scripted", "models": ["scripted"]}
    return [*tables[:position], built_in, *tables[position:]]


def _catches_scripted(table: Any) -> bool:
    patterns = table.get("models", ["*"]) if isinstance(table, dict) else []
    if not isinstance(patterns, list) or "scripted" in patterns:
        return False
    return any(isinstance(pattern, str) and fnmatchcase("scripted", pattern) for pattern in patterns)


def _is_openai(base_url: str) -> bool:
    try:
        host = urlsplit(base_url).hostname or ""
    except ValueError:
        return False
    return host == "openai.com" or host.endswith(".openai.com")
