"""Where values come from: the settings file, the environment, the command line; and which one wins."""

from __future__ import annotations

import json
import re
import tomllib
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from perdure.config.problems import ConfigError, Problem, known_keys, unknown_key
from perdure.config.providers import ProviderSettings
from perdure.config.sections import Section

Source = Literal["default", "file", "env", "flag"]

PREFIX = "PERDURE_"
PROVIDERS_VARIABLE = "PERDURE_PROVIDERS"
PROVIDER_PREFIX = "PERDURE_PROVIDER_"
PRICES_VARIABLE = "PERDURE_PRICES"

# Kubernetes sets such variables for a service that happens to be called "perdure-server".
_SERVICE_LINK = re.compile(r".*_(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT_\d+_(TCP|UDP)(_.*)?)")


@dataclass(slots=True)
class Layers:
    """Merged values, the source of each by key path, and what was wrong on the way."""

    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def put(self, section: str | None, key: str, value: Any, source: Source) -> None:
        """Set one key; a later call wins over an earlier one."""
        table = self.values if section is None else self.values.setdefault(section, {})
        path = key if section is None else f"{section}.{key}"
        if isinstance(table, dict):
            table[key] = value
            self.sources[path] = source


def read_file(path: Path) -> dict[str, Any]:
    """The settings file as nested dicts. Raises ConfigError when it cannot be read or is no TOML."""
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError([Problem(str(path), f"the settings file cannot be read: {reason}")]) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError([Problem(str(path), f"the settings file is not valid TOML: {error}")]) from error


def apply_file(layers: Layers, document: Mapping[str, Any], sections: Mapping[str, type[Section]]) -> None:
    """Lay the file's values down; its provider tables stay out (see `collect_providers`)."""
    for key, value in document.items():
        if key == "provider":
            continue
        if key in sections and isinstance(value, dict):
            for name, inner in value.items():
                layers.put(key, name, inner, "file")
        else:
            layers.put(None, key, value, "file")


def apply_environment(
    layers: Layers,
    environ: Mapping[str, str],
    top: Mapping[str, FieldInfo],
    sections: Mapping[str, type[Section]],
) -> None:
    """Lay `PERDURE_<KEY>` and `PERDURE_<SECTION>_<KEY>` over what is there; an empty one counts as unset."""
    for name, info in top.items():
        if value := environ.get(PREFIX + name.upper()):
            layers.put(None, name, from_text(value, info), "env")
    for section, model in sections.items():
        fields = known_keys(model)
        prefix = f"{PREFIX}{section.upper()}_"
        for variable, value in _set_variables(environ, prefix):
            key = variable.removeprefix(prefix).lower()
            if key in fields:
                layers.put(section, key, from_text(value, fields[key]), "env")
            else:
                layers.problems.append(Problem(variable, unknown_key(key, fields)))


def apply_prices(layers: Layers, environ: Mapping[str, str]) -> None:
    """Lay `PERDURE_PRICES`, a JSON array of price tables, over those of the file."""
    text = environ.get(PRICES_VARIABLE)
    if not text:
        return
    try:
        layers.put(None, "price", json.loads(text), "env")
    except ValueError as error:
        layers.problems.append(
            Problem(
                PRICES_VARIABLE,
                f"is not valid JSON ({error}); allowed: an array of objects with the keys of [[price]]",
            )
        )


def collect_providers(
    layers: Layers, environ: Mapping[str, str], document: Mapping[str, Any]
) -> list[Any] | None:
    """The configured provider tables, or None when neither `PERDURE_PROVIDERS` nor the file has any."""
    text = environ.get(PROVIDERS_VARIABLE)
    if text:
        try:
            tables = json.loads(text)
        except ValueError as error:
            layers.problems.append(
                Problem(PROVIDERS_VARIABLE, f"is not valid JSON ({error}); {_PROVIDERS_ALLOWED}")
            )
            return None
        source: Source = "env"
    else:
        tables, source = document.get("provider"), "file"
    if tables is None or tables == []:
        return None
    if not isinstance(tables, list):
        key = PROVIDERS_VARIABLE if text else "provider"
        layers.problems.append(Problem(key, f"is not a list; {_PROVIDERS_ALLOWED}"))
        return None
    mark_providers(layers, tables, source)
    return [dict(table) if isinstance(table, dict) else table for table in tables]


_PROVIDERS_ALLOWED = (
    "allowed: [[provider]] tables in the file, or a JSON array of objects in " + PROVIDERS_VARIABLE
)


def mark_providers(layers: Layers, tables: list[Any], source: Source) -> None:
    """Remember where the keys of these provider tables come from."""
    for table in tables:
        if isinstance(table, dict):
            for key in table:
                layers.sources[f"provider.{table.get('name')}.{key}"] = source


def apply_provider_environment(layers: Layers, environ: Mapping[str, str], tables: list[Any]) -> None:
    """Lay `PERDURE_PROVIDER_<NAME>_<KEY>` over the tables and fetch the keys that `api_key_env` names."""
    named = {str(table["name"]): table for table in tables if isinstance(table, dict) and "name" in table}
    fields = {key: info for key, info in known_keys(ProviderSettings).items() if key != "name"}
    overridden: set[tuple[str, str]] = set()
    for variable, value in _set_variables(environ, PROVIDER_PREFIX):
        rest = variable.removeprefix(PROVIDER_PREFIX)
        found = [name for name in named if rest.startswith(_variable_part(name) + "_")]
        found.sort(key=len, reverse=True)
        keys = [(name, rest[len(name) + 1 :].lower()) for name in found]
        match = next(((name, key) for name, key in keys if key in fields), None)
        if match is not None:
            name, key = match
            named[name][key] = from_text(value, fields[key])
            layers.sources[f"provider.{name}.{key}"] = "env"
            overridden.add(match)
        elif keys:
            layers.problems.append(Problem(variable, unknown_key(keys[0][1], fields)))
        else:
            known = ", ".join(sorted(named)) or "none"
            layers.problems.append(
                Problem(
                    variable,
                    f"names no configured provider; allowed: {PROVIDER_PREFIX}<NAME>_<KEY> of: {known}",
                )
            )
    for name, table in named.items():
        _resolve_key(layers, environ, name, table, overridden)


def _resolve_key(
    layers: Layers,
    environ: Mapping[str, str],
    name: str,
    table: dict[str, Any],
    overridden: set[tuple[str, str]],
) -> None:
    if "api_key" in table and "api_key_env" in table:
        if (name, "api_key") in overridden:
            del table["api_key_env"]
            layers.sources.pop(f"provider.{name}.api_key_env", None)
        elif (name, "api_key_env") in overridden:
            del table["api_key"]
        else:
            layers.problems.append(
                Problem(f"provider.{name}.api_key", "is given beside api_key_env; allowed: one of them")
            )
            return
    variable = table.get("api_key_env")
    if isinstance(variable, str) and environ.get(variable):
        table["api_key"] = environ[variable]
        layers.sources[f"provider.{name}.api_key"] = "env"


def from_text(text: str, info: FieldInfo) -> Any:
    """An environment variable as the value its key expects; unusable text is kept for validation to report.

    Lists are comma-separated or JSON, tables are JSON, `none` clears a key that may be unset.
    """
    members = (
        get_args(info.annotation)
        if get_origin(info.annotation) in (Union, types.UnionType)
        else (info.annotation,)
    )
    kind = next(member for member in members if member is not type(None))
    word = text.strip().lower()
    if len(members) > 1 and SecretStr not in members and word == "none":
        return None
    try:
        if kind is bool:
            return {
                "true": True,
                "1": True,
                "yes": True,
                "on": True,
                "false": False,
                "0": False,
                "no": False,
                "off": False,
            }[word]
        if kind is int or kind is float:
            return kind(word)
        if get_origin(kind) is dict or (get_origin(kind) is tuple and word.startswith("[")):
            return json.loads(text)
        if get_origin(kind) is tuple:
            return [part.strip() for part in text.split(",") if part.strip()]
    except (KeyError, ValueError):
        pass
    return text


def _set_variables(environ: Mapping[str, str], prefix: str) -> list[tuple[str, str]]:
    return [
        (variable, value)
        for variable, value in sorted(environ.items())
        if variable.startswith(prefix)
        and value
        and not _SERVICE_LINK.fullmatch(variable)
        and not value.startswith(("tcp://", "udp://"))
    ]


def _variable_part(name: str) -> str:
    return name.upper().replace("-", "_")
