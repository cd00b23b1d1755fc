"""The guide names every key with its true default, and its examples are accepted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from perdure.config.problems import known_keys
from perdure.config.sections import parse_size
from perdure.config.settings import (
    SECTIONS,
    ConfigError,
    ModelSettings,
    PriceSettings,
    ProviderSettings,
    Settings,
    load_settings,
)

GUIDE = Path(__file__).parents[2] / "docs" / "configuration.md"
TEXT = GUIDE.read_text(encoding="utf-8")
TABLES: dict[str, type[BaseModel]] = {
    **{f"## `[{name}]`": model for name, model in SECTIONS.items()},
    "## `[[provider]]`": ProviderSettings,
    '### `[provider.model."name"]`': ModelSettings,
    "## `[[price]]`": PriceSettings,
}
EXAMPLES = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)


def rows_below(heading: str) -> dict[str, str]:
    """The keys and defaults of the first table below a heading."""
    assert f"\n{heading}\n" in TEXT
    part = re.split(r"\n#+ ", TEXT.partition(f"\n{heading}\n")[2])[0]
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| .+ \|$", part, re.MULTILINE)
    return dict(rows)


@pytest.mark.parametrize("heading", TABLES)
def test_the_guide_lists_exactly_the_keys_of_each_table(heading: str) -> None:
    assert list(rows_below(heading)) == list(known_keys(TABLES[heading]))


def test_the_guide_lists_exactly_the_keys_outside_the_tables() -> None:
    expected = [key for key in known_keys(Settings) if key not in {*SECTIONS, "provider", "price"}]
    assert list(rows_below("## Top level")) == expected


@pytest.mark.parametrize("heading", [heading for heading in TABLES if "model" not in heading])
def test_the_guide_states_the_true_defaults(heading: str) -> None:
    rows = rows_below(heading)
    for key, info in known_keys(TABLES[heading]).items():
        written, default = rows[key].strip("`"), info.get_default(call_default_factory=True)
        match default:
            case bool():
                assert written == str(default).lower(), key
            case int() | float():
                assert float(parse_size(written)) == default, key
            case str():
                assert written == default, key
            case tuple():
                assert written == ", ".join(default), key
            case None if key != "base_url":
                assert written == "unset", key
            case _:
                assert written == ("required" if default is PydanticUndefined else written), key


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 3


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_examples_of_the_guide_load(example: str, tmp_path: Path) -> None:
    file = tmp_path / "perdure.toml"
    file.write_text(example, encoding="utf-8")
    settings = load_settings(file, {"HOME": "/home/someone"})
    assert settings.providers


def test_the_variables_of_the_guide_exist() -> None:
    environ = {
        "HOME": "/home/someone",
        "OPENAI_API_KEY": "sk-0123456789",
        "PERDURE_SERVER_KEEPALIVE": "5",
        "PERDURE_WORK_LEASE": "5",
        "PERDURE_DATABASE": "sqlite:///x.db",
        "PERDURE_DATA_DIR": "/d",
        "PERDURE_API_KEY": "0123456789",
        "PERDURE_PROVIDER_OPENAI_API_KEY": "sk-9876543210",
    }
    settings = load_settings(None, environ)
    assert all(name in TEXT for name in environ if name != "HOME")
    assert (settings.server.keepalive, settings.work.lease) == (5.0, 5.0)
    assert "sk-9876543210" in settings.secret_values()
    with pytest.raises(ConfigError):
        load_settings(None, environ | {"PERDURE_WORK_KEEPALIVE": "5"})
