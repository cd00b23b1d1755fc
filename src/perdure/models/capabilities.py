"""What each known model can do, by protocol and name; the configuration overrides all of it.

A name that no table knows is left open (None): the harness then assumes a window from the settings and
learns the true one from the first request that is refused as too long.
"""

from __future__ import annotations

import re
from dataclasses import replace

from perdure.config.settings import ModelSettings, ProviderSettings
from perdure.models.anthropic_models import family_of
from perdure.models.gemini_family import known_capabilities as gemini_capabilities
from perdure.models.messages import Capabilities, Effort

_K = 1000
_O: tuple[Effort, ...] = ("low", "medium", "high")
_FIVE: tuple[Effort, ...] = ("minimal", "low", "medium", "high")
_OLD = Capabilities(images=False, native_output_schema=False, parallel_calls=False)

# The first that is found in a name wins; gateways put the maker's name before it.
_OPENAI: tuple[tuple[re.Pattern[str], Capabilities], ...] = tuple(
    (re.compile(rf"(?:^|[/:]){pattern}"), capabilities)
    for pattern, capabilities in (
        (r"gpt-5\.[4-9](?!\d)(?!-(?:mini|nano))", Capabilities(1_050 * _K, 128 * _K)),
        (r"gpt-5-chat", Capabilities(128 * _K, 16_384)),
        (r"gpt-5(?:-mini|-nano)?(?:-20\d\d-\d\d-\d\d)?$", Capabilities(400 * _K, 128 * _K, _FIVE)),
        (r"gpt-5(?:[.-]|$)", Capabilities(400 * _K, 128 * _K)),
        (r"gpt-4\.1", Capabilities(1_047_576, 32_768)),
        (r"(?:chatgpt|gpt)-4o", Capabilities(128 * _K, 16_384)),
        (
            r"gpt-4-(?:turbo|\d{4}-preview|1106|0125)",
            Capabilities(128 * _K, 4096, native_output_schema=False),
        ),
        (r"gpt-4-32k", replace(_OLD, context_window=32_768, max_output_tokens=8192)),
        (r"gpt-4(?:-\d{4})?$", replace(_OLD, context_window=8192, max_output_tokens=4096)),
        (r"gpt-3\.5-turbo", Capabilities(16_385, 4096, images=False, native_output_schema=False)),
        (r"gpt-oss", Capabilities(131_072, None, images=False)),
        (r"o1-mini", replace(_OLD, context_window=128 * _K, max_output_tokens=65_536)),
        (r"o3-mini", Capabilities(200 * _K, 100 * _K, _O, images=False, parallel_calls=False)),
        (r"o[134](?:-|$)", Capabilities(200 * _K, 100 * _K, _O, parallel_calls=False)),
        (r"codex-mini", Capabilities(200 * _K, 100 * _K, _O)),
    )
)


def known_capabilities(protocol: str, upstream: str) -> Capabilities:
    """What the name of a model tells about it.

    Args:
        protocol: what its provider speaks.
        upstream: the name that the provider knows.
    """
    match protocol:
        case "anthropic":
            return family_of(upstream).capabilities
        case "gemini":
            return gemini_capabilities(upstream)
        case "responses" | "chat":
            name = upstream.lower()
            return next((found for pattern, found in _OPENAI if pattern.search(name)), Capabilities())
    return Capabilities()


def capabilities_of(provider: ProviderSettings, overrides: ModelSettings, upstream: str) -> Capabilities:
    """What is known of a model: what the settings say, else what its name tells."""
    known = known_capabilities(provider.protocol, upstream)
    structured, parallel = overrides.structured_output, overrides.parallel_calls
    return replace(
        known,
        context_window=overrides.context_window or provider.context_window or known.context_window,
        max_output_tokens=overrides.max_output_tokens
        or provider.max_output_tokens
        or known.max_output_tokens,
        efforts=known.efforts if overrides.efforts is None else overrides.efforts,
        images=known.images if overrides.images is None else overrides.images,
        native_output_schema=known.native_output_schema if structured is None else structured,
        parallel_calls=known.parallel_calls if parallel is None else parallel,
        compacts=provider.compacts,
    )


_CANDIDATES = re.compile(
    r"(?:maximum|context[ _-]?(?:window|length|size)|n_ctx|limit|up to)\D{0,60}?(\d[\d,_]{2,})"
    r"|(\d[\d,_]{2,})(?:\s+tokens?)?\s+(?:maximum|limit)",
    re.IGNORECASE,
)


def window_named(message: str, at_most: int) -> int | None:
    """The context window that a provider named when it refused a request as too long.

    Args:
        message: the provider's words.
        at_most: about how many tokens the refused request had; no window is larger.
    """
    numbers = [
        int(re.sub(r"\D", "", text))
        for found in _CANDIDATES.finditer(message)
        if (text := found[1] or found[2])
    ]
    return min((number for number in numbers if 256 <= number <= at_most), default=None)
