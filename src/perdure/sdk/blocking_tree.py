"""The agents of a session for programs without an event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from perdure.sdk.subagents import MainAgent, Order, Subagent
from perdure.sdk.tree import TreeNode

if TYPE_CHECKING:
    from openai.types.beta.agent_session_item import AgentSessionItem
    from openai.types.beta.agents.sessions.turn import Turn
    from openai.types.beta.token_usage import TokenUsage

T = TypeVar("T")
AgentT_co = TypeVar("AgentT_co", MainAgent, Subagent, MainAgent | Subagent, covariant=True)


class WaitFor(Protocol):
    """Runs a coroutine to its end, elsewhere."""

    def __call__(self, work: Coroutine[Any, Any, T], /) -> T:
        """What it returns."""
        ...


@dataclass(frozen=True)
class BlockingAgent(Generic[AgentT_co]):
    """An agent of a session, with methods that wait. `agent` is the `MainAgent` or `Subagent` itself."""

    agent: AgentT_co
    _wait_for: WaitFor = field(repr=False, compare=False)

    @property
    def id(self) -> str:
        """The agent's id."""
        return self.agent.id

    @property
    def name(self) -> str | None:
        """The agent's name."""
        return self.agent.name

    def turns(self, *, order: Order = "asc") -> Iterator[Turn]:
        """See `SessionAgent.turns`."""
        return each(self._wait_for, lambda: self.agent.turns(order=order))

    def items(self, *, order: Order = "asc") -> Iterator[AgentSessionItem]:
        """See `SessionAgent.items`."""
        return each(self._wait_for, lambda: self.agent.items(order=order))

    def newest_turn(self) -> Turn | None:
        """See `SessionAgent.newest_turn`."""
        return self._wait_for(self.agent.newest_turn())

    def is_running(self) -> bool:
        """See `SessionAgent.is_running`."""
        return self._wait_for(self.agent.is_running())

    def last_text(self) -> str:
        """See `SessionAgent.last_text`."""
        return self._wait_for(self.agent.last_text())

    def usage(self) -> TokenUsage | None:
        """See `SessionAgent.usage`."""
        return self._wait_for(self.agent.usage())


@dataclass(frozen=True)
class BlockingTreeNode:
    """See `TreeNode`; `parent` is the node above."""

    agent: BlockingAgent[MainAgent | Subagent]
    depth: int
    parent: TreeNode | None


def blocking_subagents(
    wait_for: WaitFor, listed: Callable[[], AsyncIterator[Subagent]]
) -> Iterator[BlockingAgent[Subagent]]:
    """The subagents of a list, page by page."""
    for subagent in each(wait_for, listed):
        yield BlockingAgent(subagent, wait_for)


def blocking_tree(
    wait_for: WaitFor, nodes: Callable[[], AsyncIterator[TreeNode]]
) -> Iterator[BlockingTreeNode]:
    """The nodes of a tree."""
    for node in each(wait_for, nodes):
        yield BlockingTreeNode(BlockingAgent(node.agent, wait_for), node.depth, node.parent)


def each(wait_for: WaitFor, make: Callable[[], AsyncIterator[T]]) -> Iterator[T]:
    """An asynchronous iterator as a plain one."""
    values = make()
    end = object()

    async def following() -> Any:
        # StopAsyncIteration cannot be handed through a future.
        return await anext(values, end)

    while (value := wait_for(following())) is not end:
        yield value
