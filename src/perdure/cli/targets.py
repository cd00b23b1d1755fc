"""What `perdure chain`, `path`, `diff` and `export` read: a session somewhere, or a file.

Where a session is has to be said, by option or environment. Nothing is asked of a server that nobody named.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from perdure.cli.options import WRONG_USAGE, effective_settings, fail

if TYPE_CHECKING:
    from perdure.inspect import Export, Reader, Redactor

TROUBLE = 2
"""Exit status of a command that could not do what it was asked; 1 is an answer."""

Target = Annotated[str, typer.Argument(metavar="TARGET", help="A session's id, a JSON file, or - for stdin.")]
Targets = Annotated[
    list[str], typer.Argument(metavar="TARGET…", help="Session ids, JSON files, or - for stdin.")
]
Url = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="The server that has the session [env: PERDURE_URL]."),
]
StoreDir = Annotated[
    Path | None, typer.Option("--data-dir", metavar="DIR", help="Read the database of this data directory.")
]
StoreUrl = Annotated[str | None, typer.Option("--database", metavar="URL", help="Read this database.")]
StoreConfig = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="Read the database that these settings name.")
]
Redact = Annotated[
    list[str] | None,
    typer.Option("--redact", metavar="NAME", help="Mask the values under this name; repeat it for more."),
]


@dataclass(frozen=True, slots=True)
class Named:
    """A JSON document with the export it holds, if it holds one."""

    name: str
    document: Any
    export: Export | None


class Sources:
    """Reads targets, from the one place that the options or the environment name, and from files."""

    def __init__(
        self,
        url: str | None = None,
        config: Path | None = None,
        data_dir: Path | None = None,
        database: str | None = None,
        redact: Sequence[str] | None = None,
    ) -> None:
        if url is not None and (data_dir is not None or database is not None or config is not None):
            fail(
                "Name either a server (--url) or a database (--data-dir, --database, --config).", WRONG_USAGE
            )
        self._url, self._config, self._data_dir, self._database = url, config, data_dir, database
        self._names = [name for each in redact or () for name in each.split(",") if name]
        self._redactor: Redactor | None = None

    def export(self, target: str, *, events: bool | Literal["for_subagents"] = False) -> Export:
        """The session that a target names, or that a file holds."""
        from perdure.inspect import export_of, read_json

        if _is_file(target):
            return self.masked(export_of(read_json(target), target))
        return self.masked(self._session(target, events))

    def named(self, target: str) -> Named:
        """Whatever a target holds: the export of a session, or the JSON of a file."""
        from perdure.inspect import read_json
        from perdure.inspect.exports import recognise

        if not _is_file(target):
            export = self.masked(self._session(target, False))
            return Named(target, export.document(), export)
        document = read_json(target)
        found = recognise(document, target)
        if found is None:
            masker = self._masker()
            return Named(target, document if masker is None else masker.value(document), None)
        export = self.masked(found)
        is_export = isinstance(document, dict) and document.get("object") == "perdure.export"
        if self._names or is_export:
            document = export.document()
        return Named(target, document, export)

    def json(self, name: str) -> Any:
        """The JSON of a file, masked."""
        from perdure.inspect import read_json

        masker = self._masker()
        document = read_json(name)
        return document if masker is None else masker.value(document)

    def _session(self, session_id: str, events: bool | Literal["for_subagents"]) -> Export:
        from perdure.inspect import read_export

        with self._reader(session_id) as reader:
            return read_export(reader, session_id, events=events)

    def _reader(self, target: str) -> AbstractContextManager[Reader]:
        from perdure.inspect import ServerReader, open_store

        names_store = self._data_dir or self._database or self._config
        if self._url is not None or (not names_store and os.environ.get("PERDURE_URL")):
            url = self._url or os.environ["PERDURE_URL"]
            key = os.environ.get("PERDURE_API_KEY")
            if not key:
                fail(f"There is no API key for {url}: set PERDURE_API_KEY.", WRONG_USAGE)
            return nullcontext(ServerReader(url, key))
        if names_store or any(
            os.environ.get(name) for name in ("PERDURE_DATABASE", "PERDURE_DATA_DIR", "PERDURE_CONFIG")
        ):
            settings = effective_settings(self._config, data_dir=self._data_dir, database=self._database)
            return open_store(settings.database)
        fail(
            f"{target} is no file, and where its session is was not said. Name the server with --url or "
            "PERDURE_URL, or the database with --data-dir or --database.",
            WRONG_USAGE,
        )

    def masked(self, export: Export) -> Export:
        """The export without what `--redact` names."""
        masker = self._masker()
        return export if masker is None else masker.export(export)

    def _masker(self) -> Redactor | None:
        if self._names and self._redactor is None:
            from perdure.inspect import Redactor

            self._redactor = Redactor(self._names)
        return self._redactor


def _is_file(target: str) -> bool:
    """Whether a target is a file's name: `-`, something that exists, or what looks like nothing else."""
    return target == "-" or target.endswith(".json") or "/" in target or Path(target).is_file()


@contextmanager
def explained() -> Iterator[None]:
    """Ends the command with a sentence and status 2 when something cannot be read or asked."""
    from perdure.inspect import InspectError

    try:
        yield
    except InspectError as error:
        fail(str(error), TROUBLE)
