from __future__ import annotations

import json
from pathlib import Path

import pytest

from perdure.config.providers import ollama_url
from perdure.config.settings import ConfigError, ProviderSettings, Settings, load_settings

HOME = {"HOME": "/home/someone"}
SECRET = "sk-Very-Secret-0123456789"


def load(environ: dict[str, str], text: str | None = None, tmp_path: Path | None = None) -> Settings:
    file = None
    if text is not None and tmp_path is not None:
        file = tmp_path / "perdure.toml"
        file.write_text(text, encoding="utf-8")
    return load_settings(file, HOME | environ)


def server_of(settings: Settings, model: str) -> str | None:
    return next((provider.name for provider in settings.providers if provider.serves(model)), None)


def key_of(provider: ProviderSettings) -> str | None:
    return None if provider.api_key is None else provider.api_key.get_secret_value()


def test_an_openai_key_alone_gives_the_responses_protocol_and_its_own_models_only() -> None:
    settings = load({"OPENAI_API_KEY": SECRET})
    provider = settings.providers[0]
    assert (provider.name, provider.protocol) == ("openai", "responses")
    assert provider.base_url == "https://api.openai.com/v1"
    assert key_of(provider) == SECRET
    assert server_of(settings, "gpt-5.1") == "openai"
    assert server_of(settings, "o3-mini") == "openai"
    assert server_of(settings, "ollama-model") is None
    assert server_of(settings, "scripted") == "scripted"


@pytest.mark.parametrize(
    ("base_url", "protocol"),
    [
        ("https://eu.api.openai.com/v1/", "responses"),
        ("http://127.0.0.1:8000/v1", "chat"),
        ("https://api.openai.com.example.net/v1", "chat"),
        ("https://notopenai.com/v1", "chat"),
    ],
)
def test_only_openais_own_hosts_are_taken_to_speak_responses(base_url: str, protocol: str) -> None:
    settings = load({"OPENAI_API_KEY": SECRET, "OPENAI_BASE_URL": base_url})
    provider = next(provider for provider in settings.providers if provider.name == "openai")
    assert provider.protocol == protocol
    assert provider.base_url == base_url.rstrip("/")


@pytest.mark.parametrize(
    ("fields", "compacts"),
    [
        ({"protocol": "responses"}, True),
        ({"protocol": "responses", "base_url": "https://eu.api.openai.com/v1"}, True),
        ({"protocol": "responses", "base_url": "https://api.openai.com.example.net/v1"}, False),
        ({"protocol": "responses", "base_url": "http://127.0.0.1:8000/v1"}, False),
        ({"protocol": "responses", "base_url": "http://127.0.0.1:8000/v1", "compaction": "native"}, True),
        ({"protocol": "responses", "compaction": "summary"}, False),
        ({"protocol": "chat", "base_url": "https://api.openai.com/v1"}, False),
        ({"protocol": "anthropic", "compaction": "summary"}, False),
    ],
)
def test_only_openai_is_taken_to_compact_itself(fields: dict[str, str], compacts: bool) -> None:
    provider = ProviderSettings.model_validate({"name": "p", **fields})
    assert provider.compacts is compacts


def test_no_other_protocol_has_a_native_compaction(tmp_path: Path) -> None:
    table = '[[provider]]\nname = "a"\nprotocol = "anthropic"\ncompaction = "native"\n'
    with pytest.raises(ConfigError, match='only with protocol = "responses"'):
        load({}, table, tmp_path)


def test_a_foreign_openai_address_takes_every_name_but_the_scripted_one() -> None:
    settings = load(
        {
            "OPENAI_API_KEY": SECRET,
            "OPENAI_BASE_URL": "http://127.0.0.1:8000/v1",
            "OPENROUTER_API_KEY": SECRET,
        }
    )
    assert server_of(settings, "meta/llama-3") == "openai"
    assert server_of(settings, "scripted") == "scripted"


def test_a_gemini_key_gives_its_protocol_and_the_gemini_models() -> None:
    settings = load({"GEMINI_API_KEY": SECRET})
    provider = settings.providers[0]
    assert (provider.name, provider.protocol) == ("gemini", "gemini")
    assert provider.base_url == "https://generativelanguage.googleapis.com/v1beta"
    assert key_of(provider) == SECRET
    assert server_of(settings, "gemini-3-flash-preview") == "gemini"
    assert server_of(settings, "gpt-5.1") is None


def test_the_usual_variables_together_share_the_names() -> None:
    settings = load({"OPENAI_API_KEY": SECRET, "OPENROUTER_API_KEY": SECRET, "OLLAMA_HOST": "box:1234"})
    assert server_of(settings, "gpt-5.1") == "openai"
    assert server_of(settings, "meta/llama-3") == "openrouter"
    assert server_of(settings, "qwen3:8b") == "ollama"
    assert server_of(settings, "scripted") == "scripted"


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0:9999", "http://127.0.0.1:9999/v1"),
        (":9999", "http://127.0.0.1:9999/v1"),
        ("[::]:9999", "http://[::1]:9999/v1"),
        ("http://box:1/", "http://box:1/v1"),
        ("https://box", "https://box/v1"),
        ("https://box/ollama/", "https://box/ollama/v1"),
    ],
)
def test_an_ollama_host_becomes_an_address_one_can_connect_to(host: str, url: str) -> None:
    assert ollama_url(host) == url


def test_an_unusable_ollama_host_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match=r"provider\.ollama\.base_url"):
        load({"OLLAMA_HOST": "box:port"})


def test_the_usual_variables_do_not_count_beside_configured_providers(tmp_path: Path) -> None:
    text = '[[provider]]\nname = "mine"\nprotocol = "responses"\nmodels = ["m"]\n'
    settings = load({"OPENAI_API_KEY": SECRET}, text, tmp_path)
    assert [provider.name for provider in settings.providers] == ["mine", "scripted"]
    assert settings.providers[0].base_url == "https://api.openai.com/v1"
    assert settings.providers[0].api_key is None


def test_the_scripted_provider_can_be_replaced_and_a_literal_name_is_respected(tmp_path: Path) -> None:
    own = '[[provider]]\nname = "scripted"\nprotocol = "scripted"\nmodels = ["a"]\nscript = "/s.toml"\n'
    assert [p.models for p in load({}, own, tmp_path).providers] == [("a",)]
    literal = '[[provider]]\nname = "demo"\nprotocol = "scripted"\nmodels = ["scripted", "b"]\n'
    assert server_of(load({}, literal, tmp_path), "scripted") == "demo"
    pattern = '[[provider]]\nname = "all"\nprotocol = "responses"\nmodels = ["s*"]\n'
    assert server_of(load({}, pattern, tmp_path), "scripted") == "scripted"


def test_providers_may_come_as_json_and_replace_those_of_the_file(tmp_path: Path) -> None:
    table = {"name": "env", "protocol": "chat", "base_url": "http://x/v1", "api_key": SECRET, "models": ["m"]}
    text = '[[provider]]\nname = "mine"\nprotocol = "responses"\n'
    settings = load({"PERDURE_PROVIDERS": json.dumps([table])}, text, tmp_path)
    assert [provider.name for provider in settings.providers] == ["env", "scripted"]
    assert settings.describe()["provider"][0]["base_url"] == {"value": "http://x/v1", "source": "env"}


@pytest.mark.parametrize("text", ["[", '{"name": "x"}', "[3]"])
def test_providers_that_are_no_list_of_tables_are_reported(text: str) -> None:
    with pytest.raises(ConfigError, match=r"PERDURE_PROVIDERS|provider"):
        load({"PERDURE_PROVIDERS": text})


def test_one_key_of_a_provider_can_be_set_in_the_environment(tmp_path: Path) -> None:
    text = """
    [[provider]]
    name = "my"
    protocol = "chat"
    base_url = "http://a/v1"
    api_key_env = "MY_KEY"
    [[provider]]
    name = "my-api"
    protocol = "chat"
    base_url = "http://b/v1"
    """
    environ = {
        "PERDURE_PROVIDER_MY_API_KEY": SECRET,
        "PERDURE_PROVIDER_MY_API_MODELS": "a, b-*",
        "PERDURE_PROVIDER_MY_MODEL": '{"a": {"upstream": "big-a"}}',
        "PERDURE_PROVIDER_MY_HEADERS": '{"X-Team": "agents"}',
        "PERDURE_PROVIDER_MY_TIMEOUT": "5",
        "MY_KEY": "not-this-one",
    }
    first, second = [
        provider for provider in load(environ, text, tmp_path).providers if provider.name != "scripted"
    ]
    assert key_of(first) == SECRET
    assert first.api_key_env is None
    assert first.timeout == 5.0
    assert first.model["a"].upstream == "big-a"
    assert first.headers == {"X-Team": "agents"}
    assert second.models == ("a", "b-*")
    assert second.api_key is None


def test_variables_of_unknown_providers_and_keys_are_reported() -> None:
    with pytest.raises(ConfigError) as caught:
        load({"PERDURE_PROVIDER_OPNAI_API_KEY": SECRET, "PERDURE_PROVIDER_SCRIPTED_SPEED": "1"})
    keys = {problem.key for problem in caught.value.problems}
    assert keys == {"PERDURE_PROVIDER_OPNAI_API_KEY", "PERDURE_PROVIDER_SCRIPTED_SPEED"}
    assert SECRET not in str(caught.value)


def test_a_key_variable_that_is_not_set_leaves_the_provider_without_key(tmp_path: Path) -> None:
    text = '[[provider]]\nname = "p"\nprotocol = "responses"\napi_key_env = "ABSENT"\n'
    provider = next(p for p in load({}, text, tmp_path).providers if p.name == "p")
    assert provider.key_is_missing
    assert (
        next(p for p in load({"ABSENT": SECRET}, text, tmp_path).providers if p.name == "p").api_key
        is not None
    )


@pytest.mark.parametrize(
    ("lines", "key"),
    [
        ('protocol = "responses"\napi_key = "0123456789"\napi_key_env = "X"', "provider.p.api_key"),
        ('protocol = "responses"\napi_key = "two words"', "provider.p.api_key"),
        ('protocol = "responses"\napi_key = ""', "provider.p.api_key"),
        ('protocol = "responses"\nbase_url = "ftp://x"', "provider.p.base_url"),
        ('protocol = "responses"\nbase_url = "https://user:pass@x/v1"', "provider.p.base_url"),
        ('protocol = "responses"\nbase_url = "https://x:99999/v1"', "provider.p.base_url"),
        ('protocol = "responses"\nscript = "x.toml"', "provider.p.script"),
        ('protocol = "scripted"\nbase_url = "http://x"', "provider.p.base_url"),
        ('protocol = "responses"\nheaders = { "X y" = "v" }', "provider.p.headers"),
        ('protocol = "responses"\nheaders = { X = "a\\r\\nB: c" }', "provider.p.headers"),
        ('protocol = "responses"\nheaders = { X = 3 }', "provider.p.headers"),
        ('protocol = "responses"\ntimeout = 0', "provider.p.timeout"),
    ],
)
def test_impossible_providers_are_refused(tmp_path: Path, lines: str, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load({}, f'[[provider]]\nname = "p"\n{lines}\n', tmp_path)
    assert [problem.key for problem in caught.value.problems] == [key]
    assert "pass" not in str(caught.value)


def test_provider_names_must_differ_also_as_variables(tmp_path: Path) -> None:
    text = "".join(f'[[provider]]\nname = "{name}"\nprotocol = "responses"\n' for name in ("a-b", "a_b"))
    with pytest.raises(ConfigError, match="'a-b' and 'a_b'"):
        load({}, text, tmp_path)


def test_secrets_are_neither_in_repr_nor_in_the_description_nor_in_errors(tmp_path: Path) -> None:
    text = f"""
    api_key = "{SECRET}-server"
    [[provider]]
    name = "p"
    protocol = "responses"
    models = ["m"]
    api_key = "{SECRET}-provider"
    headers = {{ X-Secret = "{SECRET}-header" }}
    """
    settings = load({}, text, tmp_path)
    for shown in (
        repr(settings),
        str(settings),
        json.dumps(settings.describe()),
        repr(settings.providers[0]),
    ):
        assert SECRET not in shown
    assert set(settings.secret_values()) == {f"{SECRET}-server", f"{SECRET}-provider", f"{SECRET}-header"}
    assert settings.describe()["provider"][0]["headers"]["value"] == {"X-Secret": "********"}
    with pytest.raises(ConfigError) as caught:
        load({}, text.replace(SECRET, SECRET + "\\n"), tmp_path)
    assert SECRET not in str(caught.value)
    assert {problem.key for problem in caught.value.problems} == {
        "api_key",
        "provider.p.api_key",
        "provider.p.headers",
    }


def test_model_names_match_in_their_exact_case() -> None:
    provider = ProviderSettings(name="p", protocol="scripted", models=("gpt-[45]*", "x"))
    assert [provider.serves(name) for name in ("gpt-5", "GPT-5", "gpt-6", "x", "xy")] == [
        True,
        False,
        False,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("base_url", "expected"),
    [
        (None, "https://api.anthropic.com/v1"),
        ("https://api.anthropic.com", "https://api.anthropic.com/v1"),
        ("http://127.0.0.1:4000/", "http://127.0.0.1:4000/v1"),
        ("https://gateway.example.com/anthropic/v1/", "https://gateway.example.com/anthropic/v1"),
    ],
)
def test_an_anthropic_key_gives_its_protocol_and_the_claude_models(
    base_url: str | None, expected: str
) -> None:
    settings = load({"ANTHROPIC_API_KEY": SECRET, **({"ANTHROPIC_BASE_URL": base_url} if base_url else {})})
    provider = settings.providers[0]
    assert (provider.name, provider.protocol, provider.base_url) == ("anthropic", "anthropic", expected)
    assert provider.api_key is not None
    assert provider.api_key.get_secret_value() == SECRET
    assert server_of(settings, "claude-opus-5-5") == "anthropic"
