"""Sessions with subagents read the same from the server, from its database, and from a file."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI
from tests.conformance.inputs import NONE, message
from tests.conformance.watch import until_status
from tests.server import ServerProcess, scripted_config
from typer.testing import CliRunner

from perdure.cli.main import app
from perdure.inspect import (
    Chain,
    Export,
    ServerReader,
    build_chain,
    compare,
    open_store,
    read_export,
    read_file,
)
from perdure.inspect.links import Coordination

SETTINGS = """
[subagents]
depth = 2
"""

CREW = """
[[rule]]
when = { agent = "", step = 0, user_contains = "story" }
answer = [
    { call = "create_subagent", arguments = { task = "Ask below.", name = "asks" } },
    { call = "create_subagent", arguments = { task = "The same.", name = "one" } },
    { call = "create_subagent", arguments = { task = "The same.", name = "other" } },
    { call = "wait_for_subagents", arguments = { } },
]
usage = { input_tokens = 10, output_tokens = 1 }

[[rule]]
when = { agent = "", step = 1, user_contains = "story" }
answer = [{ call = "close_subagent", arguments = { agent_id = "one" } }]
usage = { input_tokens = 10, output_tokens = 1 }

[[rule]]
when = { agent = "", step = 0, user_matches = '^leave (?P<gate>[0-9a-f]+)$' }
answer = [{ call = "create_subagent", arguments = { task = "hold {gate}", name = "holds" } }]
usage = { input_tokens = 10, output_tokens = 1 }

[[rule]]
when = { agent = "", step = 0, user_contains = "interrupt" }
answer = [
    { call = "interrupt_subagent", arguments = { agent_id = "holds" } },
    { call = "close_subagent", arguments = { agent_id = "holds" } },
    { call = "resume_subagent", arguments = { agent_id = "holds" } },
]
usage = { input_tokens = 10, output_tokens = 1 }

[[rule]]
when = { agent = "" }
answer = [{ text = "That is all." }]
usage = { input_tokens = 10, output_tokens = 1 }

[[rule]]
when = { agent = "asks", step = 0 }
answer = [
    { call = "create_subagent", arguments = { task = "Count below.", name = "below" } },
    { call = "wait_for_subagents", arguments = { } },
]
usage = { input_tokens = 20, output_tokens = 2 }

[[rule]]
when = { agent = "?*", user_matches = 'hold (?P<gate>[0-9a-f]+)' }
answer = [{ chunks = ["Before, ", { wait_for_file = "gates/{gate}" }, "after."] }]
usage = { input_tokens = 30, output_tokens = 3 }

[[rule]]
when = { agent = "?*" }
answer = [{ text = "Done: {user}" }]
usage = { input_tokens = 30, output_tokens = 3 }
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    home = tmp_path_factory.mktemp("crews")
    (home / "gates").mkdir()
    with ServerProcess(scripted_config(home, {"crew": CREW}, SETTINGS), home / "data") as process:
        yield process


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> Iterator[OpenAI]:
    with OpenAI(base_url=server.base_url, api_key=server.api_key) as opened:
        yield opened


def say(client: OpenAI, text: str) -> str:
    agent: Any = {"model": "crew", "multi_agent": {"enabled": True}}
    made = client.beta.agents.sessions.create(agent=agent, environment=NONE, input=text)
    until_status(client, made.id, "idle")
    return made.id


def from_server(server: ServerProcess, session_id: str) -> Export:
    return read_export(ServerReader(server.url, server.api_key), session_id, events="for_subagents")


def between(chain: Chain, kind: str) -> list[Coordination]:
    return [
        entry
        for thread in chain.threads
        for turn in thread.turns
        for entry in turn.entries
        if isinstance(entry, Coordination) and entry.place.type == kind
    ]


def test_a_session_with_subagents_reads_the_same_everywhere(
    server: ServerProcess, client: OpenAI, tmp_path: Path
) -> None:
    session_id = say(client, "The story.")
    remote = from_server(server, session_id)
    with open_store(f"sqlite:///{server.data_dir}/perdure.db") as reader:
        stored = read_export(reader, session_id, events="for_subagents")
    file = tmp_path / "export.json"
    file.write_text(json.dumps(remote.document()), encoding="utf-8")
    assert remote == stored == read_file(str(file))
    assert remote.settled
    assert compare(remote, stored).is_empty
    listed = client.beta.agents.sessions.subagents.list(session_id, order="asc")
    assert [part.subagent and part.subagent["id"] for part in remote.subagents] == [
        each.id for each in listed
    ]
    for part in remote.subagents:
        assert part.subagent is not None
        name = part.subagent["id"]
        items = client.beta.agents.sessions.subagents.items.list(name, session_id=session_id, order="asc")
        assert [item["id"] for item in part.items] == [item.id for item in items]
    chain = build_chain(remote)
    assert chain.findings == ()
    assert [(thread.name, thread.depth) for thread in chain.threads[1:]] == [
        ("asks", 1),
        ("below", 2),
        ("one", 1),
        ("other", 1),
    ]
    assert [thread.status for thread in chain.threads[1:]] == ["active", "active", "closed", "active"]
    names = {thread.subagent_id: thread.name for thread in chain.threads}
    made = between(chain, "create_subagent_call")
    assert [(names[each.subagent_id], each.linked_by) for each in made] == [
        ("asks", "event"),
        ("one", "event"),
        ("other", "event"),
        ("below", "instructions"),
    ]
    assert [each.outcome for each in between(chain, "wait_for_subagents_call")] == ["all_ended", "all_ended"]
    turns = {thread.name: [turn.report for turn in thread.turns] for thread in chain.threads[1:]}
    assert turns == {"asks": ["told"], "below": ["told"], "one": ["told"], "other": ["told"]}
    reported = {each.about_turn_id for each in between(chain, "agent_message")}
    assert reported == {turn.id for thread in chain.threads[1:] for turn in thread.turns}
    assert chain.usage is not None
    used = [thread.usage.total for thread in chain.threads if thread.usage is not None]
    assert len(used) == 5
    assert sum(used) == chain.usage.total


def test_a_subagent_that_is_left_at_work_and_interrupted_later(server: ServerProcess, client: OpenAI) -> None:
    gate = uuid.uuid4().hex
    session_id = say(client, f"leave {gate}")
    before = from_server(server, session_id)
    chain = build_chain(before)
    assert [each.kind for each in chain.findings] == ["subagent_running"]
    assert chain.threads[1].is_running
    client.beta.agents.sessions.events.create(session_id, events=[message("Please interrupt it.")])
    until_status(client, session_id, "idle")
    after = from_server(server, session_id)
    chain = build_chain(after)
    assert chain.findings == ()
    (ended,) = chain.threads[1].turns
    assert (ended.status, ended.report) == ("cancelled", "told_by_call")
    (interrupted,) = between(chain, "interrupt_subagent_call")
    assert (ended.told_by, interrupted.about_turn_id) == (interrupted.place.id, ended.id)
    assert [each.about_turn_id for each in between(chain, "close_subagent_call")] == [None]
    assert len(between(chain, "resume_subagent_call")) == 1
    subagent_id = chain.threads[1].subagent_id
    sections = [section.name for section in compare(before, after).sections]
    assert f"turns of {subagent_id}" in sections
    assert not [name for name in sections if name.startswith("subagent ")]  # it is active, as it was


def test_a_cancel_leaves_reports_that_wait(server: ServerProcess, client: OpenAI) -> None:
    gate = uuid.uuid4().hex
    session_id = say(client, f"leave {gate}")
    cancelled: Any = {"type": "agent.session.input.cancel"}
    client.beta.agents.sessions.events.create(session_id, events=[cancelled])
    until_status(client, session_id, "idle")
    chain = build_chain(from_server(server, session_id))
    assert [turn.report for turn in chain.threads[1].turns] == ["waiting"]
    assert [each.kind for each in chain.findings] == ["subagent_failed"]
    client.beta.agents.sessions.events.create(session_id, events=[message("What has it done?")])
    until_status(client, session_id, "idle")
    chain = build_chain(from_server(server, session_id))
    assert [turn.report for turn in chain.threads[1].turns] == ["told"]
    assert "report_missing" not in [each.kind for each in chain.findings]


@pytest.mark.parametrize("where", ["server", "database"])
def test_the_commands_show_the_tree_and_write_the_export(
    where: str, server: ServerProcess, client: OpenAI, tmp_path: Path
) -> None:
    session_id = say(client, "The story.")
    place = ["--url", server.url] if where == "server" else ["--data-dir", str(server.data_dir)]
    environ = {"PERDURE_API_KEY": server.api_key, "COLUMNS": "160"}

    def perdure(*words: str) -> Any:
        result = CliRunner().invoke(app, [*words, *place], env=environ)
        assert result.exit_code == 0, result.output
        return result

    lines = perdure("chain", session_id, "--check").stdout.splitlines()
    starts = {
        name: next(index for index, line in enumerate(lines) if "subagent" in line and f"  {name}  " in line)
        for name in ("asks", "below", "one", "other")
    }
    assert sorted(starts, key=lambda name: starts[name]) == ["asks", "below", "one", "other"]
    indents = {name: lines[index].index("subagent") for name, index in starts.items()}
    assert indents["below"] > indents["asks"] == indents["one"] == indents["other"]
    text = "\n".join(lines)
    assert "→ one (by event)" in text
    assert "until all had ended" in text
    assert "reports turn_" in text
    assert "tokens in all" in text
    assert "Nothing is out of place." in text
    table = perdure("chain", session_id, "--table").stdout
    assert "until all had ended" in table
    chains = json.loads(perdure("chain", session_id, "--json").stdout)
    assert [thread["depth"] for thread in chains["sessions"][0]["threads"]] == [0, 1, 2, 1, 1]
    file = tmp_path / "session.json"
    written = perdure("export", session_id, "-o", str(file))
    assert "of the main agent and 4 subagents" in written.stderr
    exported = json.loads(file.read_text("utf-8"))
    assert [part["subagent"]["name"] for part in exported["subagents"]] == ["asks", "one", "other", "below"]
    assert "They say the same." in perdure("diff", str(file), session_id).stdout
