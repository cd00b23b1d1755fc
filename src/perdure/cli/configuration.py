"""`perdure config`: the effective settings and where each comes from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import typer

from perdure.cli.options import AsJson, ConfigFile, Database, DataDir, effective_settings
from perdure.cli.tables import print_table


def show_configuration(
    config: ConfigFile = None, data_dir: DataDir = None, database: Database = None, as_json: AsJson = False
) -> None:
    """Show the effective configuration: every key, its value and its source. Secrets are masked."""
    described = effective_settings(config, data_dir=data_dir, database=database).describe()
    if as_json:
        typer.echo(json.dumps(described, indent=2, ensure_ascii=False))
    else:
        print_table(("Key", "Value", "Source"), flatten(described))


def flatten(described: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """The rows `(key path, value, source)` of what `Settings.describe` returns."""
    for key, inner in described.items():
        if isinstance(inner, list):
            for table in inner:
                name = table["name"]["value"]
                yield from ((f"{key}.{name}.{path}", value, source) for path, value, source in flatten(table))
        elif set(inner) == {"value", "source"}:
            yield key, _shown(inner["value"]), inner["source"]
        else:
            yield from ((f"{key}.{path}", value, source) for path, value, source in flatten(inner))


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
