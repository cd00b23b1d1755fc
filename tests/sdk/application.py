"""An application in a process of its own, which can be killed: it ships orders and keeps a ledger.

python -m tests.sdk.application URL KEY JOURNAL PLACE start TEXT
python -m tests.sdk.application URL KEY JOURNAL PLACE resume SESSION_ID

In the directory PLACE, `effects` gets a line for each time the function runs. With a file `hold` there, the
function then waits for a file `go`. What happens is printed, a line for each thing.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from perdure import Agent, Retry, Sessions, ToolContext, ToolResult, ToolStarted, tool
from perdure.sdk.journal import Unknown
from perdure.sdk.ledger import Ledger, Pinned

PLACE = Path(sys.argv[4])


class Shipments(Ledger):
    """How often this session has shipped, as far as the application knows."""

    shipped: Pinned[int] = 0


def shipped_already(pair: object) -> bool:
    effects = PLACE / "effects"
    return effects.exists() and f"{pair}\n" in effects.read_text()


def find_out(call: Unknown) -> ToolResult | Retry:
    """Look whether the shipment left, as one asks a carrier by the number of the order."""
    return ToolResult(True, "one") if shipped_already(call.pair) else Retry()


def ship(name: str, context: ToolContext[Shipments]) -> str:
    """Ship it."""
    descriptor = os.open(PLACE / "effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{context.pair}\n".encode())
    os.close(descriptor)
    while (PLACE / "hold").exists() and not (PLACE / "go").exists():
        time.sleep(0.02)
    context.ledger.update(lambda ledger: {"shipped": ledger.shipped + 1})
    return name


def agent(model: str) -> Agent[str]:
    asks = (PLACE / "asks").exists()
    name = "slow" if (PLACE / "three").exists() else "work"
    options = {"name": name, "on_unknown": find_out if asks else "fail"}
    return Agent(name="shipper", model=model, tools=[tool(ship, **options)])  # type: ignore[call-overload]


def say(*words: object) -> None:
    print(*words, flush=True)


async def main(url: str, key: str, journal: str, command: str, *words: str) -> None:
    shipper = agent("caller")
    async with Sessions(
        base_url=url, api_key=key, journal=journal, agents=[shipper], patience=30
    ) as sessions:
        if command == "start":
            session = sessions.start(shipper, ledger=Shipments())
            running = session.stream(words[0])
        else:
            session = sessions.attach(words[0], shipper, ledger_type=Shipments)
            running = session.follow_stream()
        told = False
        async with running as events:
            async for event in events:
                if session.exists and not told:
                    told = True
                    say("session", session.id)
                if isinstance(event, ToolStarted):
                    say("started", event.pair.call_id)
            result = await events.result()
        say("answer", result.final_output)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4], *sys.argv[5:]))
