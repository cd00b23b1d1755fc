"""A process that has nothing but the session's id goes on where another one left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from openai import OpenAI

from story.inputs import send_message
from story.server import Server
from story.stage import Stage

SCRIPT = Path(__file__).parent.parent / "continue_session.py"
LONGEST_SECONDS = 60


def continue_elsewhere(client: OpenAI, stage: Stage, server: Server, session_id: str) -> None:
    """Send a message and walk away; let another process answer the call and ask something of its own."""
    send_message(client, session_id, "Thanks. And B-2077?")
    stage.tell("This process sent “Thanks. And B-2077?” and does not wait for what comes.")
    stage.tell(f"A new one starts: {SCRIPT.name} {session_id} “What about C-3001?”")
    said = subprocess.run(
        [sys.executable, str(SCRIPT), session_id, "What about C-3001?"],
        env={**os.environ, "PERDURE_URL": server.url, "PERDURE_API_KEY": server.api_key, "PYTHONUTF8": "1"},
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        timeout=LONGEST_SECONDS,
        check=True,
        start_new_session=True,  # Ctrl-C reaches the demo alone, which then ends this process
    ).stdout
    for line in said.splitlines():
        stage.quote(line)

    turns = list(client.beta.agents.sessions.turns.list(session_id, order="asc"))
    answers = [
        item.output_text
        for item in client.beta.agents.sessions.items.list(session_id, order="asc")
        if item.type == "message" and item.phase == "final_answer"
    ]
    stage.check(
        "It found the call that was owed, and answered it.",
        "owed call_" in said and "waiting for payment" in "".join(answers[1:2]),
    )
    stage.check("It read the whole conversation.", "user: Where is my order A-1042?" in said)
    stage.check("It went on with a turn of its own.", "delivered" in "".join(answers[2:]))
    stage.check("All three turns are completed.", [turn.status for turn in turns] == ["completed"] * 3)
