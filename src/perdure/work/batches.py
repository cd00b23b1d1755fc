"""The queue's jobs many at a time: fetched, given back and removed in one statement each.

The queue itself does one job a statement, and looks through all that wait for each of them. What these
statements do to a job is what the queue's own do, so both may be used on the same jobs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, LiteralString

from procrastinate import jobs
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from perdure.work.queue import QUEUE, TASK

Pool = AsyncConnectionPool[Any]

# A session's job has the session for both its locks, so one at most waits, and only one that is being done
# can be in front of it. Asked as a value and not with EXISTS, that is a look into the index for each job. As
# a join, the planner, who believes that the table is small, reads all that are being done for each of them.
_FETCH: LiteralString = """
    WITH next AS (
        SELECT waiting.id FROM procrastinate_jobs AS waiting
        WHERE waiting.status = 'todo' AND waiting.queue_name = ANY(%(queues)s)
            AND (waiting.scheduled_at IS NULL OR waiting.scheduled_at <= now())
            AND (
                SELECT other.id FROM procrastinate_jobs AS other
                WHERE other.lock = waiting.lock AND other.status = 'doing'
            ) IS NULL
        ORDER BY waiting.priority DESC, waiting.id LIMIT %(limit)s
        FOR UPDATE OF waiting SKIP LOCKED
    )
    UPDATE procrastinate_jobs AS job SET status = 'doing', worker_id = %(worker)s
    FROM next WHERE job.id = next.id
    RETURNING job.id, status, task_name, priority, lock, queueing_lock, args, scheduled_at, queue_name,
        attempts, worker_id
"""
# Not back to waiting, as another wake of the session may wait already: that one is enough.
_GIVE_BACK: LiteralString = f"""
    WITH given AS (
        DELETE FROM procrastinate_jobs
        WHERE id = ANY(%(ids)s) AND status = 'doing' AND worker_id = %(worker)s RETURNING lock, args
    ), waiting AS (
        INSERT INTO procrastinate_jobs (queue_name, task_name, lock, queueing_lock, args)
        SELECT '{QUEUE}', '{TASK}', lock, lock, args FROM given ORDER BY lock
        ON CONFLICT DO NOTHING
    )
    SELECT lock FROM given
"""
_REMOVE: LiteralString = """
    DELETE FROM procrastinate_jobs WHERE id = ANY(%(ids)s) AND status IN ('todo', 'doing') RETURNING id
"""
_PASS_ON: LiteralString = """
    SELECT pg_notify(%(channel)s, json_build_object('type', 'job_inserted', 'job_id', max(id))::text)
    FROM procrastinate_jobs WHERE lock = ANY(%(locks)s) AND status = 'todo' HAVING count(*) > 0
"""


async def fetch(pool: Pool, queues: Iterable[str], worker: int, limit: int) -> list[jobs.Job]:
    """The next jobs, at most `limit`, which are then being done by the worker; in the queue's order.

    Raises:
        psycopg.Error: the database did not do it, as far as is known.
    """
    rows = await _run(pool, _FETCH, queues=list(queues), worker=worker, limit=limit)
    rows.sort(key=lambda row: (-row["priority"], row["id"]))
    return [jobs.Job.from_row(row) for row in rows]


async def give_back(pool: Pool, worker: int, job_ids: Collection[int]) -> list[str]:
    """Let jobs that the worker has not begun wait for anybody; returns their sessions.

    Raises:
        psycopg.Error: see `fetch`.
    """
    return [row["lock"] for row in await _run(pool, _GIVE_BACK, ids=list(job_ids), worker=worker)]


async def remove(pool: Pool, job_ids: Collection[int]) -> set[int]:
    """Remove jobs that are done; returns those that were still there.

    Raises:
        psycopg.Error: see `fetch`.
    """
    return {row["id"] for row in await _run(pool, _REMOVE, ids=list(job_ids))}


async def pass_on(pool: Pool, channel: str, sessions: Collection[str]) -> None:
    """Tell the other workers of wakes that wait for sessions.

    Raises:
        psycopg.Error: see `fetch`.
    """
    await _run(pool, _PASS_ON, channel=channel, locks=list(sessions))


async def _run(pool: Pool, query: LiteralString, **values: Any) -> list[dict[str, Any]]:
    async with pool.connection() as conn, conn.cursor(row_factory=dict_row) as cursor:
        # Never prepared: a plan that was made while the table was small would be kept when it has grown.
        await cursor.execute(query, values, prepare=False)
        return list(await cursor.fetchall())
