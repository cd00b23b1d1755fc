"""The chain of ids, from the lists of the API: session, turns, items, calls and their results."""

from __future__ import annotations

from collections.abc import Sequence

from openai import OpenAI
from rich.markup import escape
from rich.tree import Tree

from story.stage import Stage
from story.wording import Item, describe_item

WIDTH = 60


def show_the_chain(client: OpenAI, stage: Stage, session_id: str) -> None:
    """Draw the whole session as a tree and check that no link of it is missing."""
    sessions = client.beta.agents.sessions
    session = sessions.retrieve(session_id)
    turns = {
        turn.id: list(sessions.turns.items.list(turn.id, session_id=session_id, order="asc"))
        for turn in sessions.turns.list(session_id, order="asc")
    }
    tree = Tree(f"session {session.id} ({session.status})")
    for turn_id, items in turns.items():
        add_items(tree.add(f"turn {turn_id}"), items)
    stage.show(tree)

    items = [item for of_turn in turns.values() for item in of_turn]
    calls = [(item.turn_id, item.call_id) for item in items if item.type == "function_call"]
    results = [(item.turn_id, item.call_id) for item in items if item.type == "function_call_output"]
    stage.check(
        f"{len(calls)} calls, and each has exactly one result in its own turn.",
        len(set(calls)) == len(calls) and sorted(calls) == sorted(results),
    )
    stage.check(
        "The items of the turns, one after the other, are the items of the session.",
        [item.id for item in items] == [item.id for item in sessions.items.list(session_id, order="asc")],
    )
    stage.check("Nothing is owed.", session.status == "idle" and session.required_actions == [])


def add_items(branch: Tree, items: Sequence[Item]) -> None:
    """The items of a turn; a result hangs below the call it answers."""
    calls: dict[str, Tree] = {}
    for item in items:
        described = escape(shorten(describe_item(item)))
        match item.type:
            case "function_call":
                calls[item.call_id] = branch.add(f"{described}\n[cyan]{item.id}  {item.call_id}")
            case "function_call_output":
                calls[item.call_id].add(f"{described}\n[cyan]{item.id}  {item.call_id}")
            case _:
                branch.add(f"{described}\n[cyan]{item.id}")


def shorten(text: str) -> str:
    """The beginning of a text that is too long for a line."""
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"
