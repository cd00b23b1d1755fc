"""How connections to each kind of database are configured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.pool import NullPool

from perdure.wire.jsontext import dumps, loads

if TYPE_CHECKING:
    import psycopg

APPLICATION = "perdure"
STUCK_SECONDS = 5
# A process that is stopped in mid-transaction must not hold its row locks for long (see `stuck.py` for
# pipelines), and a server that has gone without a word must be noticed.
POSTGRES_SESSION = {
    "idle_in_transaction_session_timeout": f"{STUCK_SECONDS}s",
    "lock_timeout": "15s",
    "statement_timeout": "60s",
}
POSTGRES_TRANSPORT = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}


def _dump(value: Any) -> str:
    return dumps(value).decode()


def connect_sqlite(url: str) -> Engine:
    engine = create_engine(
        url,
        poolclass=NullPool,
        json_serializer=_dump,
        json_deserializer=loads,
        # Statements carry what people wrote; errors end in logs.
        hide_parameters=True,
        connect_args={"timeout": 10, "check_same_thread": False},
    )

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _record: Any) -> None:
        # The driver's own transaction control is off; BEGIN is ours, below.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA busy_timeout=10000")
        cursor.execute("PRAGMA cache_size=-4096")
        cursor.execute("PRAGMA temp_store=MEMORY")
        cursor.close()

    return engine


def control(conn: Connection, statement: str) -> None:
    """Transaction control of SQLite, which the driver leaves to us."""
    conn.connection.driver_connection.execute(statement)  # type: ignore[union-attr]


def connect_postgres(url: URL) -> Engine:
    """An engine whose connections can be put in pipeline mode (see `postgres_driver`)."""
    from perdure.store.postgres_driver import PipelineCursor, adapt

    engine = create_engine(
        url.set(drivername="postgresql+psycopg"),
        poolclass=NullPool,
        json_serializer=_dump,
        json_deserializer=loads,
        hide_parameters=True,
        connect_args={
            **POSTGRES_TRANSPORT,
            "application_name": APPLICATION,
            "options": " ".join(f"-c {name}={value}" for name, value in POSTGRES_SESSION.items()),
        },
    )

    @event.listens_for(engine, "connect")
    def _configure(connection: psycopg.Connection[Any], _record: Any) -> None:
        connection.cursor_factory = PipelineCursor
        adapt(connection)

    return engine


def postgres_text(url: URL) -> str:
    """The URL as PostgreSQL's own library takes it."""
    return url.set(drivername="postgresql").render_as_string(hide_password=False)
