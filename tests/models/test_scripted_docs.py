from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from tests.models.script_requests import (
    LOOKUP_ORDER,
    answer,
    call,
    calls,
    play,
    request,
    result,
    scripted,
    user,
)

from perdure.config.settings import Settings
from perdure.models import script
from perdure.models.errors import ModelError
from perdure.models.messages import ReasoningDone, TextDelta
from perdure.models.registry import Registry
from perdure.models.script_file import parse_script
from perdure.models.scripted import RETRYABLE

GUIDE = (Path(__file__).parents[2] / "docs" / "scripted-model.md").read_text("utf-8")
BLOCKS = re.findall(r"^```toml\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
SETTINGS = [block for block in BLOCKS if "[[provider]]" in block]
SCRIPTS = [block for block in BLOCKS if "[[provider]]" not in block]


def the_script(mark: str) -> str:
    (found,) = (block for block in SCRIPTS if mark in block)
    return found


@pytest.mark.parametrize("block", SCRIPTS)
def test_every_script_of_the_guide_can_be_read(block: str) -> None:
    assert parse_script(block).rule


@pytest.mark.parametrize("block", SETTINGS)
def test_every_provider_of_the_guide_can_be_configured(block: str, tmp_path: Path) -> None:
    settings = tomllib.loads(block)
    for provider in settings["provider"]:
        if "script" in provider:
            provider["script"] = str(tmp_path / provider["script"])
            Path(provider["script"]).write_text(SCRIPTS[0])
        name = provider["name"]
    assert Registry(Settings.model_validate(settings)).knows(name)


async def test_the_first_script_of_the_guide_plays(tmp_path: Path) -> None:
    model = scripted(tmp_path, SCRIPTS[0])
    asked = request(user("Where is A-1042?"), tools=(LOOKUP_ORDER,))
    assert any(isinstance(event, ReasoningDone) for event in await play(model, asked))
    assert await calls(model, asked) == [("lookup_order", '{"order_id":"A-1042"}')]
    found = result("c1", {"order_id": "A-1042", "status": "shipped"})
    answered = request(*asked.entries, call("c1"), found, tools=(LOOKUP_ORDER,))
    assert await answer(model, answered) == "Order A-1042 is shipped."
    assert await answer(model, request(user("Hello"))) == "Please give me an order number."


async def test_the_flaky_script_of_the_guide_fails_once(tmp_path: Path) -> None:
    model = scripted(tmp_path, the_script("flaky"))
    with pytest.raises(ModelError) as caught:
        await play(model, request(user("flaky"), cache_key="a"))
    assert (caught.value.retryable, caught.value.retry_after) == (True, 0.05)
    assert await answer(model, request(user("flaky"), cache_key="a")) == "Now it works."


async def test_the_cut_script_of_the_guide_is_cut(tmp_path: Path) -> None:
    stream = aiter(scripted(tmp_path, the_script("drop")).stream(request(user("drop"))))
    assert [await anext(stream), await anext(stream)] == [
        TextDelta(0, "The first "),
        TextDelta(0, "half, and then"),
    ]
    with pytest.raises(ModelError):
        await anext(stream)


async def test_the_gate_script_of_the_guide_opens(tmp_path: Path) -> None:
    (tmp_path / "gate").touch()
    model = scripted(tmp_path, the_script("wait_for_file"))
    assert await answer(model, request(user("hold gate"))) == "I am in the middle of it."


@pytest.mark.parametrize(
    "section",
    [script.When, script.Say, script.SayJson, script.Think, script.Call, script.WaitForFile, script.Fault],
)
def test_every_key_of_the_format_is_documented(section: type[script.When]) -> None:
    for name, field in section.model_fields.items():
        assert re.search(rf"`{field.alias or name}\b", GUIDE), name


def test_every_retryable_fault_is_documented() -> None:
    (row,) = (line for line in GUIDE.splitlines() if line.startswith("| `retryable`"))
    assert set(re.findall(r"`(\w+)`", row)) - {"retryable"} == RETRYABLE
