"""Who wants to hear of which session: told by every process with readers, and forgotten unless repeated."""

from __future__ import annotations

from collections.abc import Callable, Iterable

REMEMBERED_SECONDS = 30.0
RECENT_SECONDS = 5.0


class Interest:
    """What the other processes have readers of. `clock` is in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}
        self._tidied = clock()

    def wanted(self, session_id: str) -> bool:
        until = self._until.get(session_id)
        return until is not None and until > self._clock()

    def note(self, session_ids: Iterable[str]) -> list[str]:
        """Somebody wants these sessions. Returns those that nobody wanted until now."""
        now = self._clock()
        if now - self._tidied > REMEMBERED_SECONDS:
            self._until = {session_id: until for session_id, until in self._until.items() if until > now}
            self._tidied = now
        found = []
        for session_id in session_ids:
            if self._until.get(session_id, 0.0) <= now:
                found.append(session_id)
            self._until[session_id] = now + REMEMBERED_SECONDS
        return found


class Recent:
    """How far sessions have come whose events this process committed in the last seconds.

    Who asks for a session may have read it just before such a commit, which was told to nobody.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since = clock()
        self._now: dict[str, int] = {}
        self._before: dict[str, int] = {}

    def note(self, session_id: str, seq: int) -> None:
        if self._clock() - self._since > RECENT_SECONDS:
            self._before, self._now, self._since = self._now, {}, self._clock()
        self._now[session_id] = seq

    def newest(self, session_id: str) -> int | None:
        return self._now.get(session_id, self._before.get(session_id))
