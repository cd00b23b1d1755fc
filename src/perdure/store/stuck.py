"""Transactions whose process stands still: they hold row locks for as long as it does.

`idle_in_transaction_session_timeout` ends only those that stand between two statements. In a pipeline
the server takes statements without an end in sight, counts as busy, and no time-out of its own applies.
"""

from __future__ import annotations

from sqlalchemy import Connection, text

from perdure.store.connections import APPLICATION, STUCK_SECONDS

_END_STUCK = text(
    """
    SELECT count(*) FROM (
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND usename = current_user AND application_name = :application
            AND xact_start IS NOT NULL AND wait_event = 'ClientRead'
            AND state_change < clock_timestamp() - make_interval(secs => :seconds)
            AND query_start < clock_timestamp() - make_interval(secs => :seconds)
    ) AS ended
    """
)


def end_stuck(conn: Connection) -> int:
    """End the connections of this database on which the next statement is waited for too long."""
    ended = conn.execute(_END_STUCK, {"application": APPLICATION, "seconds": STUCK_SECONDS})
    return int(ended.scalar_one())
