"""Which agent stands below which."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from perdure.inspect.links import ThreadLink


def nested(threads: tuple[ThreadLink, ...]) -> tuple[ThreadLink, ...]:
    """The threads with each below the agent that created it, and with their depths.

    Those whose creator is not known stand below the root agent, behind the others.
    """
    root, *others = threads
    below: dict[str | None, list[ThreadLink]] = defaultdict(list)
    known = {thread.agent_id for thread in threads}
    for thread in others:
        below[thread.parent_agent_id if thread.parent_agent_id in known else None].append(thread)
    found: list[ThreadLink] = []
    # With a stack and not by recursion: how deep agents go is up to the server.
    left = [(root, 0)]
    seen: set[int] = set()
    for first in (left, [(each, 1) for each in others]):
        stack = list(reversed(first))
        while stack:
            thread, depth = stack.pop()
            if id(thread) in seen:
                continue
            seen.add(id(thread))
            found.append(replace(thread, depth=depth))
            children = [*below[thread.agent_id], *(below[None] if thread is root and root.agent_id else ())]
            stack += [(child, depth + 1) for child in reversed(children)]
    return tuple(found)
