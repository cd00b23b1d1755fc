"""Conversations kept between turns, so that a turn costs what is new and not the whole history.

A cache and no more: one is used again only if nobody else owned the session in between, which its
epoch tells; what the API added since is read from the store.
"""

from __future__ import annotations

from collections import OrderedDict

from perdure.harness.conversation import Conversation

KEPT = 512
KEPT_BYTES = 8 << 20


def place_of(session_id: str, subagent_id: str | None) -> str:
    """Under which name what this process keeps of an agent is found; it begins with the agent's session."""
    return session_id if subagent_id is None else f"{session_id}/{subagent_id}"


class Conversations:
    """The most recently used conversations, within `KEPT` of them and `KEPT_BYTES` of JSON."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[int, Conversation]] = OrderedDict()
        self._size = 0

    def take(self, place: str, epoch: int) -> Conversation | None:
        """The conversation as the owner before `epoch` left it, if that owner was of this process."""
        found = self._kept.pop(place, None)
        if found is None:
            return None
        self._size -= found[1].size
        return found[1] if found[0] == epoch - 1 else None

    def keep(self, place: str, epoch: int, conversation: Conversation) -> None:
        """Keep what the owner with `epoch` leaves behind, unless it is too large to be worth it."""
        if conversation.size > KEPT_BYTES:
            return
        self._kept[place] = (epoch, conversation)
        self._size += conversation.size
        while self._kept and (self._size > KEPT_BYTES or len(self._kept) > KEPT):
            _, (_, oldest) = self._kept.popitem(last=False)
            self._size -= oldest.size
