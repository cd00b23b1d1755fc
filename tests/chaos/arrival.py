"""What a client that comes back with its cursor was told, against what is stored."""

from __future__ import annotations

from typing import Any

from openai import AsyncOpenAI

from .picture import TURN


def check_told(told: list[tuple[str, str]], stored: list[str]) -> None:
    """Every stored event was told once, in its order; what else was told shows an item being written."""
    assert [identity for identity, _ in told if identity in stored] == stored
    others = {kind for identity, kind in told if identity not in stored}
    beginnings = ("item", "content_part", "reasoning_summary_part")
    assert others <= {f"{TURN}{what}.added" for what in beginnings}


async def stored_behind(client: AsyncOpenAI, url: str, session_id: str, cursor: str) -> list[str]:
    """The ids of the stored events behind a cursor."""
    found: list[str] = []
    while True:
        page: Any = await client.get(
            f"{url}/perdure/v1/sessions/{session_id}/events",
            cast_to=object,
            options={"params": {"after": cursor, "limit": 50}},
        )
        found += [event["event_id"] for event in page["data"]]
        if not page["has_more"]:
            return found
        cursor = page["last_id"]
