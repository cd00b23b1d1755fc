"""What is known of the turn that a run follows, merged from events and from what was read, by item id."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from perdure.sdk.results import answer_text

if TYPE_CHECKING:
    from openai.types.beta.agent_output_item import AgentOutputItem
    from openai.types.beta.agent_session_event import AgentSessionEvent
    from openai.types.beta.agent_session_item import AgentSessionItem
    from openai.types.beta.agents.sessions.turn import Turn

ENDED = frozenset({"completed", "failed", "cancelled"})


class Picture:
    """The newest turn of the main agent, and its items in their order.

    Attributes:
        turn: the turn; None until it is known.
        is_idle: whether the session came to rest behind the end of that turn.
        failure: the server's reason, once the session itself has failed.
        main_turns: turns that the server has told to be the main agent's.
        subagent_turns: turns that are not.
    """

    def __init__(self) -> None:
        self.turn: Turn | None = None
        self.is_idle = False
        self.has_failed = False
        self.failure: str | None = None
        self.main_turns: set[str] = set()
        self.subagent_turns: set[str] = set()
        self._baseline: str | None = None
        self._items: dict[str, AgentSessionItem] = {}
        self._final: set[str] = set()

    def begin_after(self, turn_id: str | None) -> None:
        """Name the last turn before the run, which is not the one to follow."""
        self._baseline = turn_id
        if turn_id is not None:
            self.main_turns.add(turn_id)

    @property
    def items(self) -> tuple[AgentSessionItem, ...]:
        return tuple(self._items.values())

    @property
    def has_ended(self) -> bool:
        """Whether the turn has ended, however."""
        return self.turn is not None and self.turn.status in ENDED

    @property
    def text(self) -> str:
        return answer_text(self.items)

    def accept(self, event: AgentSessionEvent) -> bool:
        """Merge an event; returns False for one that tells of an item that is final already."""
        match event.type:
            case "agent.session.turn.created" | "agent.session.turn.in_progress":
                self._see_turn(event.turn)
            case (
                "agent.session.turn.completed" | "agent.session.turn.failed" | "agent.session.turn.cancelled"
            ):
                self._see_turn(event.turn)
            case "agent.session.turn.item.added":
                return self._see_item(event.item, is_final=False)
            case "agent.session.turn.item.done":
                return self._see_item(event.item, is_final=True)
            case "agent.session.in_progress" | "agent.session.requires_action":
                self.is_idle = False
            case "agent.session.idle":
                self.is_idle = self.has_ended
            case "agent.session.failed":
                self.has_failed, self.failure = True, event.session.error
            case _:
                item_id = getattr(event, "item_id", None)
                return item_id is None or item_id not in self._final
        return True

    def catch_up(self, turn: Turn | None, items: Iterable[AgentSessionItem], status: str) -> None:
        """Merge what was read after a stream was opened; what was read is at least as new as the picture."""
        if turn is not None and turn.id != self._baseline:
            self._see_turn(turn)
            known, self._items = self._items, {}
            for item in items:
                if item.id is not None:
                    self._items[item.id] = item
                    if getattr(item, "status", "completed") != "in_progress":
                        self._final.add(item.id)
            for item_id, item in known.items():
                self._items.setdefault(item_id, item)
        self.is_idle = status == "idle" and self.has_ended

    def _see_turn(self, turn: Turn) -> None:
        if turn.subagent_id is not None:
            self.subagent_turns.add(turn.id)
            return
        self.main_turns.add(turn.id)
        if turn.id == self._baseline:
            return
        if self.turn is None or self.turn.id != turn.id:
            if turn.status in ENDED and self.turn is not None and turn.created_at < self.turn.created_at:
                return  # of an earlier turn, told late
            self._items.clear()
            self.is_idle = False
        elif self.has_ended and turn.status not in ENDED:
            return
        self.turn = turn

    def _see_item(self, item: AgentSessionItem | AgentOutputItem, *, is_final: bool) -> bool:
        if item.id is None or item.id in self._final:
            return item.id is None
        if self.turn is None or item.turn_id != self.turn.id:
            return True  # of a subagent, or of a turn that is not followed here
        merged: Any = item  # what is told as done is one of the kinds that are listed
        self._items[item.id] = merged
        if is_final:
            self._final.add(item.id)
        return True
