"""What we ask of psycopg beyond its defaults: pipelines that SQLAlchemy can use, text without U+0000.

In a pipeline, statements leave without waiting for the answers to those before them, so a transaction
of many statements costs few round trips. Hot statements run on plain cursors and wait only when their
rows are fetched; every other statement runs on a `PipelineCursor`, which waits at once.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.abc import Buffer
from psycopg.pq import PipelineStatus
from psycopg.types.string import StrDumperUnknown


class PipelineCursor(psycopg.Cursor[Any]):
    """A cursor that has its result when `execute` returns, in a pipeline too."""

    def execute(self, *args: Any, **kwargs: Any) -> PipelineCursor:
        super().execute(*args, **kwargs)
        self._settle()
        return self

    def executemany(self, *args: Any, **kwargs: Any) -> None:
        super().executemany(*args, **kwargs)
        self._settle()

    def _settle(self) -> None:
        if self.connection.pgconn.pipeline_status != PipelineStatus.OFF:
            with self.connection.pipeline() as pipeline:
                pipeline.sync()


class _Text(StrDumperUnknown):
    """Text in which U+0000, which PostgreSQL cannot hold, is replaced.

    People's text is JSON, in which it is escaped; it is left in ids somebody made up, and those must
    match nothing.
    """

    def dump(self, obj: str) -> Buffer | None:
        return super().dump(obj.replace("\0", "\ufffd") if "\0" in obj else obj)


def adapt(connection: psycopg.Connection[Any]) -> None:
    connection.adapters.register_dumper(str, _Text)
