from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.models.script_requests import answer, request, user

from perdure.config.settings import ProviderSettings, Settings
from perdure.models.messages import Capabilities
from perdure.models.registry import Registry, UnknownModel
from perdure.models.script_file import ScriptError


def provider(name: str, *models: str, **settings: Any) -> ProviderSettings:
    return ProviderSettings.model_validate(
        {"name": name, "protocol": "scripted", "models": models or ("*",)} | settings
    )


def registry(*providers: ProviderSettings) -> Registry:
    return Registry(Settings(provider=providers))


def test_the_first_provider_that_matches_serves_a_name() -> None:
    models = registry(provider("big", "gpt-*", "o[0-9]"), provider("rest"))
    assert [models.resolve(name).provider for name in ("gpt-5", "o3", "other")] == ["big", "big", "rest"]


def test_patterns_are_case_sensitive() -> None:
    models = registry(provider("big", "gpt-*"))
    assert models.knows("gpt-5")
    assert not models.knows("GPT-5")


def test_a_provider_can_be_addressed_by_its_name() -> None:
    models = registry(provider("all"), provider("lab", "lab-*"))
    found = models.resolve("lab/meta/llama")
    assert (found.provider, found.upstream) == ("lab", "meta/llama")


def test_a_slash_without_a_provider_of_that_name_is_part_of_the_model() -> None:
    models = registry(provider("router", "*/*"))
    found = models.resolve("meta/llama")
    assert (found.provider, found.upstream) == ("router", "meta/llama")


def test_an_override_serves_its_name_and_renames_it() -> None:
    models = registry(provider("lab", "lab-*", model={"fast": {"upstream": "lab-mini-2"}}))
    assert models.resolve("fast").upstream == "lab-mini-2"
    assert models.resolve("lab/fast").upstream == "lab-mini-2"
    assert models.resolve("lab-1").upstream == "lab-1"


@pytest.mark.parametrize("name", ["x", "", "lab/", "/lab", "lab"])
def test_an_unknown_model_names_what_is_served(name: str) -> None:
    models = registry(provider("lab", "lab-*", model={"fast": {}}))
    assert not models.knows(name)
    with pytest.raises(UnknownModel, match=r"lab serves lab-\*, fast") as caught:
        models.resolve(name)
    assert caught.value.name == name


def test_without_providers_every_model_is_unknown() -> None:
    with pytest.raises(UnknownModel, match="No provider is configured"):
        registry().resolve("x")


def test_capabilities_come_from_the_override_and_then_the_provider() -> None:
    models = registry(
        provider(
            "lab",
            context_window=8000,
            max_output_tokens=500,
            model={
                "small": {
                    "context_window": 2000,
                    "efforts": ("low",),
                    "images": False,
                    "structured_output": False,
                }
            },
        )
    )
    assert models.resolve("any").capabilities == Capabilities(context_window=8000, max_output_tokens=500)
    assert models.resolve("small").capabilities == Capabilities(
        context_window=2000, max_output_tokens=500, efforts=("low",), images=False, native_output_schema=False
    )


def test_a_provider_has_one_adapter() -> None:
    models = registry(provider("a", "a*"), provider("b", "b*"))
    assert models.resolve("a1").model is models.resolve("a/other").model
    assert models.resolve("a1").model is not models.resolve("b1").model


async def test_providers_may_play_different_scripts(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.toml").write_text(f'[otherwise]\nanswer = [{{ text = "{name}" }}]')
    models = registry(*(provider(name, name, script=tmp_path / f"{name}.toml") for name in ("a", "b")))
    assert [await answer(models.resolve(n).model, request(user("x"))) for n in ("a", "b")] == ["a", "b"]


def test_a_mistake_in_a_script_is_found_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "script.toml"
    path.write_text("rules = []")
    with pytest.raises(ScriptError):
        registry(provider("a", script=path))


@pytest.mark.parametrize(
    ("upstream", "window", "output", "efforts", "structured"),
    [
        ("claude-opus-5-5", 1_000_000, 128_000, ("low", "medium", "high", "xhigh", "max"), True),
        ("claude-haiku-4-5-20251001", 200_000, 64_000, ("none", "minimal", "low", "medium", "high"), True),
        ("anthropic/claude-opus-4.1", 200_000, 32_000, ("none", "minimal", "low", "medium", "high"), False),
        ("my-own", None, 32_000, None, False),
    ],
)
def test_what_the_name_of_a_model_tells_is_known(
    upstream: str, window: int | None, output: int, efforts: tuple[str, ...] | None, structured: bool
) -> None:
    overrides = {"a": {"upstream": upstream}, "b": {"upstream": upstream, "context_window": 8000}}
    overrides["c"] = {"upstream": upstream, "efforts": ["low"], "structured_output": not structured}
    models = registry(
        provider("claude", protocol="anthropic", base_url="http://127.0.0.1:9/v1", model=overrides)
    )
    known = models.resolve("a").capabilities
    assert (known.context_window, known.max_output_tokens, known.efforts) == (window, output, efforts)
    assert known.native_output_schema is structured
    assert models.resolve("b").capabilities.context_window == 8000
    assert models.resolve("c").capabilities.efforts == ("low",)
    assert models.resolve("c").capabilities.native_output_schema is not structured


async def test_network_adapters_are_made_at_first_use_and_closed() -> None:
    models = registry(
        provider("openai", "gpt-*", protocol="responses", base_url="http://127.0.0.1:9/v1"),
        provider("local", protocol="chat", base_url="http://127.0.0.1:9/v1"),
    )
    first = models.resolve("gpt-5").model
    assert models.resolve("openai/other").model is first
    assert models.resolve("llama").model is not first
    await models.close()
    assert models.resolve("gpt-5").model is not first
    await models.close()


def test_a_scripted_server_loads_no_http_client() -> None:
    code = (
        "import sys\n"
        "from perdure.config.settings import ProviderSettings, Settings\n"
        "from perdure.models.registry import Registry\n"
        "providers = (ProviderSettings(name='scripted', protocol='scripted'),)\n"
        "Registry(Settings(provider=providers)).resolve('scripted')\n"
        "assert 'aiohttp' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_model_is_known_to_compact_by_its_provider() -> None:
    at_openai = provider("openai", "gpt-*", protocol="responses")
    elsewhere = provider("rest", protocol="responses", base_url="http://127.0.0.1:1/v1")
    models = registry(at_openai, elsewhere)
    assert models.resolve("gpt-5").capabilities.compacts
    assert not models.resolve("other").capabilities.compacts
