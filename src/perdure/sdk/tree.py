"""The agents of a session as a tree, each below the one that created it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from perdure.sdk.subagents import MainAgent, Subagent, subagents_of

if TYPE_CHECKING:
    from perdure.sdk.session import Session


@dataclass(frozen=True)
class TreeNode:
    """An agent and its place: `depth` is 0 for the main agent, whose `parent` is None."""

    agent: MainAgent | Subagent
    depth: int = 0
    parent: TreeNode | None = field(default=None, repr=False)


async def tree_of(session: Session[Any]) -> AsyncIterator[TreeNode]:
    """The main agent, then its subagents depth first, siblings in the order of their creation.

    Every subagent comes once. One whose creator is not known comes last, below the main agent.
    """
    found = await session.retrieve()
    # An agent that is not saved has no name on the server.
    name = found.agent.name or session.agent.name
    root = TreeNode(MainAgent(session, found.agent.id, name, found.status))
    yield root
    subagents = [each async for each in subagents_of(session)]
    below: dict[str, list[Subagent]] = defaultdict(list)
    known = {root.agent.id, *(each.id for each in subagents)}
    strangers = [each for each in subagents if each.parent_agent_id not in known]
    for each in subagents:
        below[each.parent_agent_id].append(each)
    seen: set[str] = set()
    # The last round is for those that name each other as their creators.
    for first in (below[root.agent.id], strangers, subagents):
        # With a stack and not by recursion: how deep agents go is up to the server.
        left = [TreeNode(each, 1, root) for each in reversed(first)]
        while left:
            node = left.pop()
            if node.agent.id in seen:
                continue
            seen.add(node.agent.id)
            yield node
            left += [TreeNode(each, node.depth + 1, node) for each in reversed(below[node.agent.id])]
