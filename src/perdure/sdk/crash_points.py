"""Crash points: places with names around a tool call at which a test ends or stops the process.

Without `PERDURE_FAULT` in the environment a crash point does nothing. Its value is `name`, `name=kill` or
`name=stop`, with `#n` behind the name for the n-th time it is reached: `tool:after-run#2=kill`.

In the order of a call: `journal:before-begin`, `journal:after-begin`, `tool:before-run`, `tool:after-run`,
`journal:before-finish`, `journal:finish-before-commit`, `journal:after-finish`, `result:before-submit`,
`result:after-submit`, `journal:after-submitted`. Where a pinned field of the ledger has changed, before the
result is submitted: `pins:before-update`, `pins:after-update`. Around the creation of a session that has a
ledger: `ledger:after-create`, `ledger:before-bind`, `ledger:after-bind`.

The server has points of the same form with other names; both may run in one process.
"""

from __future__ import annotations

import os
import re
import signal
import threading

VARIABLE = "PERDURE_FAULT"
_FORM = re.compile(r"(?P<name>[\w:<>.-]+)(#(?P<count>\d+))?(=(?P<action>kill|stop))?")


class _Point:
    def __init__(self, text: str) -> None:
        form = _FORM.fullmatch(text)
        if form is None:
            raise ValueError(f"{VARIABLE}={text!r} is not name[#n][=kill|stop]")
        self.name = form["name"]
        self._left = int(form["count"] or 1)
        self._stops = form["action"] == "stop"
        self._lock = threading.Lock()

    def hit(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGSTOP if self._stops else signal.SIGKILL)


_point: _Point | None = None


def arm(fault: str | None) -> None:
    """Set the point at which this process ends, as `PERDURE_FAULT` does; None for nowhere.

    Raises:
        ValueError: the text is not of the form of the variable.
    """
    global _point  # noqa: PLW0603 - one point for a process
    _point = _Point(fault) if fault else None


def reach(name: str) -> None:
    """Mark a crash point; ends or stops the process if a test asked for it here."""
    if _point is not None and _point.name == name:
        _point.hit()


arm(os.environ.get(VARIABLE))
