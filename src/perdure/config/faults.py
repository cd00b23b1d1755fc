"""Fault points: places with names at which a crash test ends or stops the process.

Without `PERDURE_FAULT` in the environment a fault point does nothing. Its value is
`name`, `name=kill` or `name=stop`, with `#n` behind the name for the n-th time it is reached:
`commit_step:after-commit#2=kill`. Store operations have the points `<operation>:before-commit`,
`<operation>:after-commit` and `<operation>:after-announce`; the loop has `model:before-call`,
`model:first-output` and `model:after-call`, and `compaction:before-call` and `compaction:after-call`
around the call that writes a summary.

`PERDURE_FAULT_LOG` names a file to which each point is written, one line each time it is reached.
"""

from __future__ import annotations

import os
import re
import signal
import threading

VARIABLE = "PERDURE_FAULT"
LOG_VARIABLE = "PERDURE_FAULT_LOG"
_FORM = re.compile(r"(?P<name>[\w:<>.-]+)(#(?P<count>\d+))?(=(?P<action>kill|stop))?")
_SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


class _Fault:
    def __init__(self, text: str) -> None:
        form = _FORM.fullmatch(text)
        if form is None:
            raise ValueError(f"{VARIABLE}={text!r} is not name[#n][=kill|stop]")
        self.name = form["name"]
        self._left = int(form["count"] or 1)
        self._signal = _SIGNALS[form["action"] or "kill"]
        self._lock = threading.Lock()

    def hit(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), self._signal)


_text = os.environ.get(VARIABLE)
_fault = _Fault(_text) if _text else None
_path = os.environ.get(LOG_VARIABLE)
_log = os.open(_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600) if _path else None


def reach(name: str) -> None:
    """Mark a fault point; ends or stops the process if a test asked for it here."""
    if _log is not None:
        os.write(_log, f"{name}\n".encode())
    if _fault is not None and _fault.name == name:
        _fault.hit()
