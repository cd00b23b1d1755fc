"""Sessions in the states the tests start from."""

from __future__ import annotations

from typing import Any

from openai import OpenAI

from .inputs import NONE, WEATHER
from .watch import until_status


def create(client: OpenAI, model: str, said: str = "Hello.", /, *, tools: Any = (), **agent: Any) -> Any:
    """A new session of an inline agent, as the create call returned it."""
    return client.beta.agents.sessions.create(
        agent={"model": model, "tools": list(tools), **agent}, environment=NONE, input=said
    )


def create_idle(client: OpenAI, model: str = "echo", said: str = "Hello.", /, **agent: Any) -> Any:
    """A session whose first turn has ended."""
    return until_status(client, create(client, model, said, **agent).id, "idle")


def create_waiting(
    client: OpenAI, model: str = "weather", said: str = "The weather?", /, **agent: Any
) -> Any:
    """A session that waits for the results of the calls in its `required_actions`."""
    agent.setdefault("tools", [WEATHER])
    return until_status(client, create(client, model, said, **agent).id, "requires_action")


def items(client: OpenAI, session_id: str) -> list[Any]:
    """All items, oldest first."""
    return list(client.beta.agents.sessions.items.list(session_id, order="asc", limit=100))


def turns(client: OpenAI, session_id: str) -> list[Any]:
    """All root turns, oldest first."""
    return list(client.beta.agents.sessions.turns.list(session_id, order="asc", limit=100))


def kinds(entries: list[Any]) -> list[str]:
    """Items in one word each: `user`, `assistant`, or the type."""
    return [item.role if item.type == "message" else item.type for item in entries]


def text_of(item: Any) -> str:
    """The text of a message."""
    return "".join(part.text for part in item.content)


def user_texts(client: OpenAI, session_id: str) -> list[str]:
    return [text_of(item) for item in items(client, session_id) if kinds([item]) == ["user"]]


def answers(client: OpenAI, session_id: str) -> list[str]:
    """The assistant's texts, oldest first."""
    return [text_of(item) for item in items(client, session_id) if kinds([item]) == ["assistant"]]
