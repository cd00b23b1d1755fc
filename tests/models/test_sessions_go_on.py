"""Sessions with functions and images that a provider refuses, through a real server and the client."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI
from tests.models.test_offered import ARGUMENTS, HOSTILE, PLAIN, declared
from tests.models.wires import WIRES, Wire
from tests.providers.answers import Call, Text, answer
from tests.providers.server import KEY
from tests.server import ServerProcess, scripted_config

from perdure.models.messages import FunctionSpec
from perdure.models.offered import Offered

NAME = "orders.look up"
BROKEN = "data:image/png;base64," + base64.b64encode(b"BROKEN").decode()
ICON = "data:image/png;base64," + base64.b64encode(b"\x00\x00\x01\x00 an icon").decode()
SETTINGS = "[retry]\nbase_delay = 0.01\nmax_delay = 0.02\n"


def said(text: str, *images: str) -> Any:
    pictures = [{"type": "input_image", "image_url": url} for url in images]
    return [{"role": "user", "content": [{"type": "input_text", "text": text}, *pictures]}]


@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
async def test_a_session_goes_on(wire: Wire, tmp_path: Path) -> None:
    """A strange function is called with its own properties, and no image ends the conversation."""
    asked: list[dict[str, Any]] = []
    tool = {"type": "function", "name": NAME, "description": "", "parameters": HOSTILE}
    async with wire.provider() as provider:
        table = f"""
[[provider]]
name = "fake"
protocol = "{provider.PROTOCOL}"
base_url = "{provider.base_url}"
api_key = "{KEY}"
models = ["fake"]
"""
        config = scripted_config(tmp_path, {}, SETTINGS + table)
        with ServerProcess(config, tmp_path / "data") as server:
            async with AsyncOpenAI(base_url=server.base_url, api_key=server.api_key) as client:
                sessions = client.beta.agents.sessions
                provider.queue(answer(Text("Good day.")))
                created = await sessions.create(
                    agent={"model": "fake", "tools": [tool]},  # type: ignore[list-item]
                    environment={"type": "none"},
                    input=said("Hello.", ICON),
                    stream=True,
                )
                first = await created.get_final_result()
                assert first.output_text == "Good day."

                async def ask(content: Any) -> str:
                    handlers: Any = {NAME: lambda arguments: asked.append(arguments) or "found"}
                    async with sessions.stream(
                        first.session_id, input=content, tool_handlers=handlers
                    ) as stream:
                        return str((await stream.get_final_result()).output_text)

                (theirs, _, schema) = declared(provider.requests[-1].body)[0]
                arguments = json.dumps(ARGUMENTS)
                if "$top" not in schema["properties"]:
                    arguments = Offered((FunctionSpec(NAME, "", HOSTILE),), PLAIN).arguments(NAME, arguments)
                provider.queue(answer(Call(theirs, arguments)), answer(Text("Found.")))
                assert await ask("Look it up.") == "Found."
                assert asked == [ARGUMENTS]
                assert provider.violations == []
                provider.queue(answer(Text("I cannot see it.")))
                assert await ask(said("And this?", BROKEN)) == "I cannot see it."
                refused = len(provider.violations)
                assert refused == 1
                assert await ask("Thanks.") == "You said: Thanks."
                assert len(provider.violations) == refused
