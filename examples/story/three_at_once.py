"""Three subagents look at one order at the same time, each with a context of its own."""

from __future__ import annotations

from openai import OpenAI

from story.stage import Stage
from story.wording import text_of


def compare_with_subagents(client: OpenAI, stage: Stage) -> None:
    """Let the model give its work away, and see who did what."""
    sessions = client.beta.agents.sessions
    stream = sessions.create(
        agent={"model": "scripted", "multi_agent": {"enabled": True, "max_concurrent_subagents": 3}},
        environment={"type": "none"},
        input="Compare the packing notes of A-1042 with its invoice.",
        stream=True,
    )
    session_id, answer = "", ""
    with stream:
        for event in stream:
            stage.event(event)
            match event.type:
                case "agent.session.created":
                    session_id = event.session.id
                case "agent.session.turn.item.done":
                    if event.item.type == "message" and event.item.phase == "final_answer":
                        answer = text_of(event.item)

    children = list(sessions.subagents.list(session_id, order="asc"))
    stage.tell("What each of them did, below the session's own lists:")
    turns = []
    for child in children:
        turns += list(sessions.subagents.turns.list(child.id, session_id=session_id))
        stage.tell(f"{child.name} ({child.id})")
        stage.items(list(sessions.subagents.items.list(child.id, session_id=session_id, order="asc")))

    items = list(sessions.items.list(session_id, order="asc"))
    reports = [item.sender_agent_id for item in items if item.type == "agent_message"]
    stage.check("Three subagents had one turn each.", len(children) == len(turns) == 3)
    starts = [turn.started_at or 0 for turn in turns]
    ends = [turn.completed_at or 0 for turn in turns]
    stage.check("They worked at the same time.", max(starts) <= min(ends))
    stage.check(
        "The coordinator got one report of each.", sorted(reports) == sorted(child.id for child in children)
    )
    stage.check(
        "Its own lists and its stream hold no turn of theirs.",
        {item.turn_id for item in items}.isdisjoint(turn.id for turn in turns),
    )
    stage.check("It answers with what they found.", "4 lamps were packed, 5 were billed" in answer)
