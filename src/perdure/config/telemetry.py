"""What traces say: every name of a span, an attribute and an event, in one place.

The names that begin with `gen_ai.` are those of OpenTelemetry's semantic conventions for generative AI, as of
version 1.44. They are marked as in development and still change, so nothing else in the package spells
them out. Those that begin with `perdure.` are ours. `docs/operations.md` lists both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from perdure.config.providers import BASE_URLS, ProviderSettings

SCOPE = "perdure"
"""The instrumentation scope of every span."""
SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
SERVICE_NAME = "service.name"
SERVICE_VERSION = "service.version"

# ---- operations

OPERATION = "gen_ai.operation.name"
INVOKE_AGENT = "invoke_agent"
CHAT = "chat"

# ---- who works, and on what

CONVERSATION_ID = "gen_ai.conversation.id"
COMPACTED = "gen_ai.conversation.compacted"
AGENT_ID = "gen_ai.agent.id"
AGENT_NAME = "gen_ai.agent.name"
TURN_ID = "perdure.turn.id"
SUBAGENT_ID = "perdure.subagent.id"
PARENT_AGENT_ID = "perdure.parent_agent.id"
STEP = "perdure.step"
PURPOSE = "perdure.purpose"
OUTCOME = "perdure.outcome"
RECOVERED = "perdure.turn.recovered"
MODEL_CALLS = "perdure.model_calls"

# ---- of whom a model call is made, and what comes of it

PROVIDER = "gen_ai.provider.name"
CONFIGURED_PROVIDER = "perdure.provider"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"
REQUEST_MODEL = "gen_ai.request.model"
REQUEST_STREAM = "gen_ai.request.stream"
OUTPUT_TYPE = "gen_ai.output.type"
RESPONSE_ID = "gen_ai.response.id"
FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS = "gen_ai.usage.cache_creation.input_tokens"
REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"
COST = "perdure.cost.amount"
CURRENCY = "perdure.cost.currency"
ERROR_TYPE = "error.type"
RETRYABLE = "perdure.error.retryable"
HTTP_STATUS = "http.response.status_code"

# ---- events

TOOL_CALL = "perdure.tool_call"
TOOL_NAME = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
TOOL_CALL_ID = "gen_ai.tool.call.id"
TURN_RECOVERED = "perdure.turn.recovered"
TURN_ENDED = "perdure.turn.ended"

_FLAVOURS: Mapping[str, str] = {"responses": "openai", "anthropic": "anthropic", "gemini": "gcp.gemini"}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A provider as the conventions name it, and where it is reached; a scripted one is nowhere."""

    name: str
    address: str | None
    port: int | None


def endpoint_of(provider: ProviderSettings) -> Endpoint:
    """What spans say of the provider of a call."""
    address = provider.base_url or BASE_URLS.get(provider.protocol)
    if provider.protocol == "scripted" or address is None:
        return Endpoint(provider.name, None, None)
    url = urlsplit(address)
    host = url.hostname or ""
    is_openai = host == "openai.com" or host.endswith(".openai.com")
    name = "openai" if is_openai else _FLAVOURS.get(provider.protocol, provider.name)
    return Endpoint(name, host, url.port or (443 if url.scheme == "https" else 80))
