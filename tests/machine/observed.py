"""What the API shows of a session, held against a world."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import httpx2

from .rules import ENDED, ItemState, TurnState, World
from .script import INPUT_TOKENS, OUTPUT_TOKENS

Json = dict[str, Any]


@dataclass(frozen=True)
class Observed:
    """A session, its turns and its items, oldest first, read one after the other."""

    session: Json
    turns: list[Json]
    items: list[Json]

    @cached_property
    def turn_number(self) -> dict[str, int]:
        return {turn["id"]: number for number, turn in enumerate(self.turns)}

    @cached_property
    def item_number(self) -> dict[str, int]:
        return {item["id"]: number for number, item in enumerate(self.items)}

    @cached_property
    def calls(self) -> list[Json]:
        return [item for item in self.items if item["type"] == "function_call"]

    @cached_property
    def call_number(self) -> dict[str, int]:
        return {call["call_id"]: number for number, call in enumerate(self.calls)}


def observe(client: httpx2.Client, session_id: str) -> Observed:
    path = f"/agents/sessions/{session_id}"
    return Observed(get(client, path), read_list(client, f"{path}/turns"), read_list(client, f"{path}/items"))


def get(client: httpx2.Client, path: str, **params: Any) -> Json:
    response = client.get(path, params=params)
    assert response.status_code == 200, f"GET {path}: {response.status_code} {response.text}"
    body: Json = response.json()
    return body


def read_list(client: httpx2.Client, path: str, order: str = "asc", limit: int = 100) -> list[Json]:
    """All pages of a list."""
    found: list[Json] = []
    params: Json = {"order": order, "limit": limit}
    while True:
        page = get(client, path, **params)
        data = page["data"]
        found += data
        assert page["first_id"] == (data[0]["id"] if data else None), page
        assert page["last_id"] == (data[-1]["id"] if data else None), page
        if not page["has_more"]:
            return found
        assert len(data) == limit
        params["after"] = page["last_id"]


def text_of(item: Json) -> str:
    parts = item["content"] if item["type"] == "message" else item["summary"]
    return "".join(part["text"] for part in parts)


def kind_of(item: Json) -> str:
    return str(item["role"] if item["type"] == "message" else item["type"])


def user_texts(items: list[Json]) -> list[str]:
    return [text_of(item) for item in items if kind_of(item) == "user"]


def difference(world: World, seen: Observed) -> str | None:
    """The first thing that is not as the world says; None when all is."""
    session = seen.session
    agent = session["agent"]
    pairs: list[tuple[str, Any, Any]] = [
        ("status", world.status, session["status"]),
        ("turns", [turn.status for turn in world.turns], [turn["status"] for turn in seen.turns]),
        ("items", [item.kind for item in world.items], [kind_of(item) for item in seen.items]),
        ("model", world.model, agent["model"]),
        ("tools", list(world.tools), [tool["name"] for tool in agent["tools"]]),
        ("metadata", dict(world.metadata), session["metadata"]),
        ("error", None, session["error"]),
    ]
    for name, expected, found in pairs:
        if expected != found:
            return f"{name}: expected {expected}, found {found}"
    for number, (turn, shown) in enumerate(zip(world.turns, seen.turns, strict=True)):
        problem = _turn_difference(turn, shown, seen)
        if problem is not None:
            return f"turn {number}: {problem}"
    for number, (item, shown) in enumerate(zip(world.items, seen.items, strict=True)):
        problem = _item_difference(world, item, shown, seen)
        if problem is not None:
            return f"item {number}: {problem}"
    return _actions_difference(world, seen) or _usage_difference(world, seen)


def _turn_difference(turn: TurnState, shown: Json, seen: Observed) -> str | None:
    error = shown["error"]
    ended = turn.status in ENDED
    counts = (
        {turn.answers, turn.answers + 1} if turn.status == "cancelled" and turn.cut_off else {turn.answers}
    )
    usages = [None if turn.uncounted else usage_of(count) for count in counts]
    facts = {
        "error": (error["code"] if error else None) == turn.error,
        "started": (shown["started_at"] is not None) == turn.started,
        "completed": (shown["completed_at"] is not None) == ended,
        "agent": shown["agent_id"] == seen.session["agent"]["id"] and shown["subagent_id"] is None,
        "session": shown["session_id"] == seen.session["id"],
        "usage": shown["usage"] in usages,
    }
    wrong = [name for name, holds in facts.items() if not holds]
    return f"{wrong} of {shown}, expected {turn}" if wrong else None


def _item_difference(world: World, item: ItemState, shown: Json, seen: Observed) -> str | None:
    facts = {
        "status": shown["status"] == item.status,
        "turn": seen.turn_number.get(shown["turn_id"]) == item.turn,
    }
    match item.kind:
        case "user":
            facts["text"] = text_of(shown) == item.text
        case "assistant" | "reasoning":
            whole = item.status == "completed"
            text = text_of(shown)
            facts["text"] = text == item.text if whole else item.text.startswith(text)
            facts["phase"] = shown.get("phase") == item.phase
        case "function_call":
            assert item.call is not None
            call = world.calls[item.call]
            facts["call"] = seen.call_number[shown["call_id"]] == item.call
            facts["name"] = (shown["name"], shown["arguments"]) == (call.name, dict(call.arguments))
        case "function_call_output":
            assert item.call is not None
            facts["call"] = seen.call_number.get(shown["call_id"]) == item.call
            result = world.calls[item.call].result
            if item.refusal:
                facts["refusal"] = shown["output"] is None and bool(shown["error"])
            elif result is not None:
                facts["result"] = (shown["output"], shown["error"]) == (result.output, result.error)
    wrong = [name for name, holds in facts.items() if not holds]
    return f"{wrong} of {shown}, expected {item}" if wrong else None


def _actions_difference(world: World, seen: Observed) -> str | None:
    expected = [
        {
            "type": "function_call",
            "turn_id": seen.calls[number]["turn_id"],
            "call_id": seen.calls[number]["call_id"],
            "name": world.calls[number].name,
            "arguments": dict(world.calls[number].arguments),
        }
        for number in world.open_calls
    ]
    found = seen.session["required_actions"]
    return None if found == expected else f"required_actions: expected {expected}, found {found}"


def _usage_difference(world: World, seen: Observed) -> str | None:
    ended = [n for n, turn in enumerate(world.turns) if turn.status in ENDED]
    told = [seen.turns[n]["usage"] for n in ended if seen.turns[n]["usage"] is not None]
    expected = None
    if told and not any(world.turns[n].uncounted for n in ended):
        expected = usage_of(sum(usage["input_tokens"] for usage in told) // INPUT_TOKENS)
    found = seen.session["usage"]
    return None if found == expected else f"usage: expected {expected}, found {found}"


def usage_of(answers: int) -> Json | None:
    if answers == 0:
        return None
    read, wrote = answers * INPUT_TOKENS, answers * OUTPUT_TOKENS
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": wrote,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": read + wrote,
    }
