"""A session with one schema-checked tool: events as they come, a call, its result, the answer."""

from __future__ import annotations

from openai import OpenAI

from story.inputs import answer_call
from story.orders import lookup_order
from story.stage import Stage
from story.wording import text_of


def ask_for_an_order(client: OpenAI, stage: Stage) -> str:
    """Create the session and follow its first turn; returns the session's id."""
    stream = client.beta.agents.sessions.create(
        agent={
            "model": "scripted",
            "instructions": "You are the order desk.",
            "tools": [lookup_order.definition],
        },
        environment={"type": "none"},
        input="Where is my order A-1042?",
        metadata={"story": "order desk"},
        stream=True,
    )
    session_id, answer, calls = "", "", []
    with stream:
        for event in stream:
            stage.event(event)
            match event.type:
                case "agent.session.created":
                    session_id = event.session.id
                case "agent.session.requires_action":
                    for action in event.session.required_actions:
                        if action.type == "function_call":
                            calls.append(action)
                            stage.tell(f"→ tool_result {answer_call(client, session_id, action)}")
                case "agent.session.turn.item.done":
                    if event.item.type == "message" and event.item.phase == "final_answer":
                        answer = text_of(event.item)

    stage.check(
        "The model called the tool once, with arguments that satisfy its schema.",
        [call.arguments for call in calls] == [{"order_id": "A-1042"}],
    )
    stage.check("The answer tells what the tool returned.", "A-1042" in answer and "shipped" in answer)
    stage.check(
        "The session is idle: it waits for the next message, as rows in a database.",
        client.beta.agents.sessions.retrieve(session_id).status == "idle",
    )
    return session_id
