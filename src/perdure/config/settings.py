"""The settings of a perdure process: one frozen object, made of file, environment and command line.

Precedence: command line, then environment, then file, then default. `docs/configuration.md` lists
every key.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from perdure.config.description import (
    credentials_of,
    describe_section,
    describe_value,
    mask_credentials,
    mask_password,
    password_of,
)
from perdure.config.layers import (
    Layers,
    Source,
    apply_environment,
    apply_file,
    apply_prices,
    apply_provider_environment,
    collect_providers,
    mark_providers,
    read_file,
)
from perdure.config.prices import PriceSettings
from perdure.config.problems import ConfigError, Problem, explain, key_path, unknown_key
from perdure.config.providers import (
    BASE_URLS,
    ModelSettings,
    ProviderSettings,
    place_scripted,
    providers_from_environment,
)
from perdure.config.sections import (
    ContextSettings,
    LimitSettings,
    LogSettings,
    RetrySettings,
    Section,
    ServerSettings,
    SubagentSettings,
    TelemetrySettings,
    WorkSettings,
    check_bus_urls,
    check_key,
    check_postgres_url,
)

__all__ = [
    "SECTIONS",
    "ConfigError",
    "ContextSettings",
    "LimitSettings",
    "LogSettings",
    "ModelSettings",
    "PriceSettings",
    "Problem",
    "ProviderSettings",
    "RetrySettings",
    "ServerSettings",
    "Settings",
    "SubagentSettings",
    "TelemetrySettings",
    "WorkSettings",
    "default_data_dir",
    "load_settings",
]

POSTGRES_SCHEMES = ("postgresql", "postgres")
SECTIONS: Mapping[str, type[Section]] = {
    "server": ServerSettings,
    "work": WorkSettings,
    "retry": RetrySettings,
    "limits": LimitSettings,
    "context": ContextSettings,
    "subagents": SubagentSettings,
    "telemetry": TelemetrySettings,
    "log": LogSettings,
}


def default_data_dir(environ: Mapping[str, str]) -> Path:
    """`$XDG_DATA_HOME/perdure`, else `~/.local/share/perdure`."""
    base = environ.get("XDG_DATA_HOME", "")
    # The base directory specification says that a relative value must be ignored.
    if base and Path(base).is_absolute():
        return Path(base) / "perdure"
    home = environ.get("HOME")
    return (Path(home) if home else Path.home()) / ".local" / "share" / "perdure"


class Settings(Section):
    """Everything a process can be told. Secrets are `SecretStr` or kept out of `repr`."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    data_dir: Path = Field(default_factory=lambda: default_data_dir(os.environ))
    """Directory of the database, the generated API key and other files of the server."""
    database: str = Field(default_factory=lambda data: f"sqlite:///{data['data_dir']}/perdure.db", repr=False)
    """URL of the database; unset means `perdure.db` in the data directory."""
    database_connections: int = Field(10, ge=2, le=1000)
    """Most connections of this process to a PostgreSQL database for its reads and writes."""
    bus: str | None = Field(None, repr=False)
    """URLs of NATS servers that carry events between processes; unset: PostgreSQL's notifications."""
    api_key: Annotated[SecretStr | None, Field(min_length=8, max_length=512)] = Field(None, repr=False)
    """A key that clients may use for the default project, beside those that `perdure keys` creates."""
    server: ServerSettings = Field(default_factory=ServerSettings)
    work: WorkSettings = Field(default_factory=WorkSettings)
    retry: RetrySettings = Field(default_factory=RetrySettings)
    limits: LimitSettings = Field(default_factory=LimitSettings)
    context: ContextSettings = Field(default_factory=ContextSettings)
    subagents: SubagentSettings = Field(default_factory=SubagentSettings)
    telemetry: TelemetrySettings = Field(default_factory=TelemetrySettings)
    log: LogSettings = Field(default_factory=LogSettings)
    providers: tuple[ProviderSettings, ...] = Field((), alias="provider")
    prices: tuple[PriceSettings, ...] = Field((), alias="price")

    _sources: dict[str, Source] = PrivateAttr(default_factory=dict)

    @field_validator("database")
    @classmethod
    def _check_database(cls, value: str) -> str:
        scheme, separator, rest = value.partition("://")
        if scheme in POSTGRES_SCHEMES and separator and rest:
            return check_postgres_url(value)
        if scheme != "sqlite" or rest[:1] != "/" or rest[1:].startswith((":memory:", "?")) or not rest[1:]:
            raise ValueError(
                "is not usable; allowed: sqlite:///<path of a file>, with a fourth slash when it is absolute,"
                " or postgresql://<user>:<password>@<host>/<database>"
            )
        return value

    @field_validator("bus")
    @classmethod
    def _check_bus(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None:
            return None
        check_bus_urls(value)
        if str(info.data.get("database", "")).startswith("sqlite:"):
            raise ValueError(
                "has no use with SQLite, which one process owns; allowed: with a postgresql:// database"
            )
        return value

    @field_validator("api_key")
    @classmethod
    def _check_api_key(cls, value: SecretStr | None) -> SecretStr | None:
        return value if value is None else check_key(value)

    @field_validator("prices")
    @classmethod
    def _check_currencies(cls, value: tuple[PriceSettings, ...]) -> tuple[PriceSettings, ...]:
        currencies = sorted({price.currency for price in value})
        if len(currencies) > 1:
            raise ValueError(
                f"prices are given in {' and '.join(currencies)}; allowed: one currency, so that costs add up"
            )
        return value

    @field_validator("providers")
    @classmethod
    def _check_names(cls, value: tuple[ProviderSettings, ...]) -> tuple[ProviderSettings, ...]:
        seen: dict[str, str] = {}
        for provider in value:
            variable = provider.name.replace("-", "_")
            if variable in seen:
                raise ValueError(
                    f"two providers are called {seen[variable]!r} and {provider.name!r};"
                    " allowed: names that differ in more than - and _"
                )
            seen[variable] = provider.name
        return value

    def secret_values(self) -> tuple[str, ...]:
        """Every secret in clear text, for `perdure.secrets.redaction.Redactor` and nothing else."""
        values = [] if self.api_key is None else [self.api_key.get_secret_value()]
        if password := password_of(self.database):
            values.append(password)
        values.extend(credentials_of(self.bus or ""))
        for provider in self.providers:
            if provider.api_key is not None:
                values.append(provider.api_key.get_secret_value())
            values.extend(provider.headers.values())
        return tuple(values)

    def describe(self) -> dict[str, Any]:
        """Each key as `{"value": …, "source": "default" | "file" | "env" | "flag"}`, secrets masked.

        Sections are dicts of such entries, `provider` is a list of them.
        """
        described: dict[str, Any] = {}
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, Section):
                described[name] = describe_section(value, name, self._sources)
            elif name == "providers":
                described["provider"] = [
                    describe_section(provider, f"provider.{provider.name}", self._sources)
                    for provider in self.providers
                ]
            elif name == "prices":
                described["price"] = describe_value(value, "price", self._sources)
            else:
                match name:
                    case "database":
                        shown = mask_password(value)
                    case "bus" if value is not None:
                        shown = mask_credentials(value)
                    case _:
                        shown = value
                described[name] = describe_value(shown, name, self._sources)
        return described


def load_settings(
    path: Path | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Settings:
    """The effective settings.

    Args:
        path: the settings file; None means the one that `PERDURE_CONFIG` names, if any.
        environ: environment variables; None means those of the process.
        overrides: values from the command line by key path, such as `{"server.port": 0}`; None values
            count as not given.

    Raises:
        ConfigError: with every problem, when a key is unknown or a value has the wrong type or is impossible.
    """
    environ = os.environ if environ is None else environ
    if path is None and environ.get("PERDURE_CONFIG"):
        path = Path(environ["PERDURE_CONFIG"]).expanduser()
    document = read_file(path) if path is not None else {}
    layers = Layers()
    apply_file(layers, document, SECTIONS)
    top = {
        name: info
        for name, info in Settings.model_fields.items()
        if name not in SECTIONS and name not in ("providers", "prices")
    }
    apply_environment(layers, environ, top, SECTIONS)
    for key, value in (overrides or {}).items():
        if value is not None:
            section, _, name = key.rpartition(".")
            layers.put(section or None, name, value, "flag")

    apply_prices(layers, environ)
    tables = collect_providers(layers, environ, document)
    if tables is None:
        tables = providers_from_environment(environ)
        mark_providers(layers, tables, "env")
    tables = place_scripted(tables)
    apply_provider_environment(layers, environ, tables)
    for table in tables:
        if isinstance(table, dict) and table.get("protocol") in BASE_URLS:
            table.setdefault("base_url", BASE_URLS[table["protocol"]])
    _resolve_paths(layers, tables, environ, path)

    for plural, key in (("providers", "provider"), ("prices", "price")):
        if plural in layers.values:
            layers.problems.append(Problem(plural, unknown_key(plural, [key])))
            del layers.values[plural]
    return _validate(layers, tables)


def _validate(layers: Layers, tables: list[Any]) -> Settings:
    values = {**layers.values, "provider": tables}
    if undecoded := list(_undecoded(values, ())):
        problems = [Problem(_name_provider(key_path(path), tables), _UNDECODED) for path in undecoded]
        raise ConfigError([*layers.problems, *problems])
    # JSON mode is the strict one that still reads arrays as tuples and texts as paths and secrets.
    text = json.dumps(values, default=str)
    try:
        settings = Settings.model_validate_json(text, strict=True, by_name=False)
    except ValidationError as error:
        found = explain(Settings, error.errors(include_url=False))
        problems = [Problem(_name_provider(problem.key, tables), problem.message) for problem in found]
        raise ConfigError([*layers.problems, *problems]) from None
    if layers.problems:
        raise ConfigError(layers.problems)
    settings._sources.update(layers.sources)
    return settings


_UNDECODED = "holds bytes that are no text; allowed: UTF-8"


def _undecoded(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    """Where a variable or an argument was not UTF-8: Python keeps such bytes as lone surrogates."""
    match value:
        case dict():
            for key, inner in value.items():
                yield from _undecoded(inner, (*path, key))
        case list():
            for index, inner in enumerate(value):
                yield from _undecoded(inner, (*path, index))
        case str() | Path() if any("\ud800" <= character <= "\udfff" for character in str(value)):
            yield path
        case _:
            pass


def _name_provider(key: str, tables: list[Any]) -> str:
    def name(found: re.Match[str]) -> str:
        table = tables[int(found[1])]
        label = table.get("name") if isinstance(table, dict) else None
        return f"provider.{label}" if isinstance(label, str) else "provider"

    return re.sub(r"^provider\[(\d+)\]", name, key)


def _resolve_paths(layers: Layers, tables: list[Any], environ: Mapping[str, str], file: Path | None) -> None:
    """Make paths absolute: those in the file are relative to it, all others to the working directory."""

    def absolute(value: Any, source: Source) -> Any:
        if not isinstance(value, (str, Path)) or value == "":
            return value
        folder = file.parent if file is not None and source == "file" else Path()
        return str((folder / Path(value).expanduser()).absolute())

    data_dir = layers.values.get("data_dir", default_data_dir(environ))
    layers.values["data_dir"] = absolute(data_dir, layers.sources.get("data_dir", "default"))
    for table in tables:
        if isinstance(table, dict) and "script" in table:
            source = layers.sources.get(f"provider.{table.get('name')}.script", "default")
            table["script"] = absolute(table["script"], source)
