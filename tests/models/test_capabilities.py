"""What is known of models by their names, and every setting that overrides it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from perdure.config.settings import ModelSettings, ProviderSettings
from perdure.models.capabilities import capabilities_of, known_capabilities
from perdure.models.messages import Capabilities

OVERRIDES: list[tuple[str, Any, str]] = [
    ("context_window", 8000, "context_window"),
    ("max_output_tokens", 500, "max_output_tokens"),
    ("efforts", ("low",), "efforts"),
    ("images", False, "images"),
    ("images", True, "images"),
    ("structured_output", False, "native_output_schema"),
    ("structured_output", True, "native_output_schema"),
    ("parallel_calls", False, "parallel_calls"),
    ("parallel_calls", True, "parallel_calls"),
]
MODELS = [
    ("responses", "gpt-5.5"),
    ("responses", "o3-mini"),
    ("chat", "gpt-4"),
    ("chat", "of-nobody"),
    ("anthropic", "claude-opus-5-5"),
    ("anthropic", "claude-3-5-haiku"),
    ("gemini", "gemini-3-pro"),
    ("gemini", "of-nobody"),
]


def provider(protocol: str, **fields: Any) -> ProviderSettings:
    return ProviderSettings.model_validate(
        {"name": "lab", "protocol": protocol, "base_url": "http://127.0.0.1:9/v1", **fields}
    )


@pytest.mark.parametrize(("protocol", "upstream"), MODELS)
@pytest.mark.parametrize(("setting", "value", "capability"), OVERRIDES)
def test_a_setting_overrides_what_a_name_tells(
    protocol: str, upstream: str, setting: str, value: Any, capability: str
) -> None:
    known = known_capabilities(protocol, upstream)
    settings = ModelSettings.model_validate({setting: value})
    found = capabilities_of(provider(protocol, compaction="summary"), settings, upstream)
    assert found == replace(known, **{capability: value})


@pytest.mark.parametrize(("protocol", "upstream"), MODELS)
def test_a_size_of_the_model_wins_over_that_of_its_provider(protocol: str, upstream: str) -> None:
    whole = provider(protocol, context_window=9000, max_output_tokens=700)
    found = capabilities_of(whole, ModelSettings(), upstream)
    assert (found.context_window, found.max_output_tokens) == (9000, 700)
    one = ModelSettings.model_validate({"context_window": 8000, "max_output_tokens": 600})
    found = capabilities_of(whole, one, upstream)
    assert (found.context_window, found.max_output_tokens) == (8000, 600)


@pytest.mark.parametrize(
    ("protocol", "upstream", "expected"),
    [
        ("responses", "gpt-5.5", Capabilities(1_050_000, 128_000)),
        ("responses", "gpt-5-mini", Capabilities(400_000, 128_000, ("minimal", "low", "medium", "high"))),
        (
            "responses",
            "o4-mini",
            Capabilities(200_000, 100_000, ("low", "medium", "high"), parallel_calls=False),
        ),
        (
            "chat",
            "openai/gpt-4-0613",
            Capabilities(8192, 4096, images=False, native_output_schema=False, parallel_calls=False),
        ),
        ("chat", "llama-4", Capabilities()),
        ("scripted", "gpt-5.5", Capabilities()),
    ],
)
def test_a_name_tells(protocol: str, upstream: str, expected: Capabilities) -> None:
    assert known_capabilities(protocol, upstream) == expected
