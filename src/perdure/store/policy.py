"""What the server's settings say about turns that wait and about subagents."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Policy:
    """Times in microseconds.

    Args:
        call_timeout_us: longest wait for the result of a function call; None: for ever.
        depth: how many generations of subagents there may be below the root agent.
        most: how many subagents one session may have in its life.
        wait_us, longest_wait_us: how long an agent waits for subagents when it does not say, and at most.
        reports_wake: whether the report of a subagent begins a turn of an agent that is idle.
    """

    call_timeout_us: int | None = None
    depth: int = 1
    most: int = 100
    wait_us: int = 300_000_000
    longest_wait_us: int = 3_600_000_000
    reports_wake: bool = False


DEFAULT = Policy()
