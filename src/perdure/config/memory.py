"""Giving large blocks of memory back to the system as soon as they are free."""

from __future__ import annotations

import contextlib
import ctypes

_M_MMAP_THRESHOLD = -3
_LARGE = 1 << 20


def return_large_blocks() -> None:
    """Let the allocator map every block from 1 MiB on by itself, and unmap it when it is freed.

    glibc raises that bound with the first large block it sees; from then on a process keeps what a result
    of some megabytes once took. Other C libraries have no such call and need none.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE)
