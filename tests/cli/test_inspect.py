"""`perdure export`, `chain`, `path` and `diff` as people type them, over files; servers are in "
"tests/inspect."""

from __future__ import annotations

import json
import socket
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Perdure
from tests.inspect.histories import action, answer, call, export, result, sent, session, turn, user

from perdure.inspect import Export

Write = Callable[[str, Any], Path]


@pytest.fixture
def write(perdure: Perdure) -> Write:
    def write(name: str, content: Any) -> Path:
        document = content.document() if isinstance(content, Export) else content
        file = perdure.home / name
        file.write_text(json.dumps(document), encoding="utf-8")
        return file

    return write


def waiting() -> Export:
    asked = session(status="requires_action", required_actions=[action()])
    return export(user(), call(status="in_progress"), session=asked, turns=(turn(status="waiting"),))


def test_chain_prints_a_tree_of_turn_call_and_result(perdure: Perdure, write: Write) -> None:
    text = perdure("chain", write("a.json", export())).stdout
    assert [line.strip("│├└─ ") for line in text.splitlines()] == [
        "sess_8f21  idle  some-model",
        "main agent  agt_main",
        "turn_1  completed  5 s",
        "user       Look up A-1042.",
        "call       lookup_order  answered  call_3c91",
        'asked      {"order_id": "A-1042"}',
        'result     {"order_id": "A-1042", "status": "paid"}',
        "assistant  It is paid.",
        "",
        "Nothing is out of place.",
    ]
    assert "fco_1" not in text
    assert "fco_1" in perdure("chain", "--ids", write("a.json", export())).stdout


def test_chain_says_what_is_owed(perdure: Perdure, write: Write) -> None:
    text = perdure("chain", "--check", write("a.json", waiting())).stdout
    assert "lookup_order  owed  call_3c91" in text
    assert "owed  function_call  lookup_order  call_3c91  in turn_1" in text


def test_chain_as_a_table_and_as_json(perdure: Perdure, write: Write) -> None:
    file = write("a.json", waiting())
    table = perdure("chain", "--table", file).stdout
    for word in ("main agent", "turn_1", "call_3c91", "owed", "Look up A-1042."):
        assert word in table
    document = json.loads(perdure("chain", "--json", file).stdout)
    assert document["object"] == "perdure.chain"
    (chain,) = document["sessions"]
    assert chain["owed"] == [
        {"type": "function_call", "turn_id": "turn_1", "key": "call_3c91", "name": "lookup_order"}
    ]
    entries = chain["threads"][0]["turns"][0]["entries"]
    assert [(each["kind"], each.get("state")) for each in entries] == [("message", None), ("call", "owed")]
    perdure("chain", "--table", "--json", file, status=2)


def test_check_ends_with_1_for_problems_alone(perdure: Perdure, write: Write) -> None:
    drifted = write("drifted.json", export(user(), call(), result(call_id="call_3c9l"), answer()))
    assert "✗ result_id_drifted" in perdure("chain", drifted).stdout
    perdure("chain", "--check", drifted, status=1)
    dropped = export(user(), call(status="incomplete"), turns=(turn(status="cancelled"),))
    assert "· call_dropped" in perdure("chain", "--check", write("dropped.json", dropped)).stdout


def test_several_sessions_are_compared_for_retries(perdure: Perdure, write: Write) -> None:
    again = export(session=session(id="sess_9999", created_at=1_760_000_060))
    files = [write("a.json", waiting()), write("b.json", again)]
    assert "✗ retry_in_new_session  sess_9999" in perdure("chain", "--check", *files, status=1).stdout


def test_a_ledger_and_a_pattern_take_part(perdure: Perdure, write: Write) -> None:
    file = write("a.json", export(user("A-1042, and PO#77."), call(), result(), answer()))
    ledger = write("ledger.json", {"session_id": "sess_other"})
    assert "ledger_of_other_session" in perdure("chain", file, "--ledger", ledger).stdout
    assert "id_only_in_chat" not in perdure("chain", file).stdout
    assert "PO#77 stands only in chat" in perdure("chain", file, "--id", r"PO#\d+").stdout
    held = write("held.json", {"orders": ["PO#77"]})
    assert "id_only_in_chat" not in perdure("chain", file, "--id", r"PO#\d+", "--ledger", held).stdout
    assert "regular expression" in perdure("chain", file, "--id", "(", status=2).stderr
    perdure("chain", file, file, "--ledger", ledger, status=2)


def test_path_names_the_item_and_the_turn_of_each_hit(perdure: Perdure, write: Write) -> None:
    file = write("a.json", export())
    assert perdure("path", "$.items..order_id", file).stdout.splitlines() == [
        "fc_1  function_call  turn_1  call_3c91",
        "  A-1042",
        "    $['items'][1]['arguments']['order_id']",
        "fco_1  function_call_output  turn_1  call_3c91",
        "  A-1042",
        "    $['items'][2]['output']['order_id']  in JSON text",
    ]
    hits = json.loads(perdure("path", "$.items..order_id", "--json", file).stdout)
    assert [(hit["item_id"], hit["inside"]) for hit in hits] == [
        ("fc_1", None),
        ("fco_1", "$['items'][2]['output']"),
    ]


def test_path_reads_any_json_and_ends_with_1_if_there_is_nothing(perdure: Perdure, write: Write) -> None:
    ledger = write("ledger.json", {"order_id": "A-1042", "steps": [{"order_id": "B-2077"}]})
    assert perdure("path", "$..order_id", ledger).stdout.split() == [
        "A-1042", "$['order_id']", "B-2077", "$['steps'][0]['order_id']",
    ]  # fmt: skip
    assert "Nothing is at $.nothing" in perdure("path", "$.nothing", ledger, status=1).stderr
    assert "RFC 9535" in perdure("path", "order_id", ledger, status=2).stderr


def test_diff_ends_like_diff(perdure: Perdure, write: Write) -> None:
    before, after = write("before.json", waiting()), write("after.json", export())
    assert "They say the same." in perdure("diff", before, before).stdout
    text = perdure("diff", before, after, status=1).stdout
    assert '~ /status: "in_progress" → "completed"' in text
    assert "+ fco_1  function_call_output  completed" in text
    document = json.loads(perdure("diff", "--json", before, after, status=1).stdout)
    items = next(each for each in document["sections"] if each["name"] == "items")
    assert items["changes"][0]["operations"] == [
        {"op": "replace", "path": "/status", "value": "completed", "before": "in_progress"}
    ]


def test_diff_of_ledgers_and_of_anything_else(perdure: Perdure, write: Write) -> None:
    one, other = write("one.json", {"amount": 5}), write("other.json", {"amount": 6})
    assert "~ /amount: 5 → 6" in perdure("diff", one, other, status=1).stdout
    with_one = write("with.json", export(ledger={"amount": 6}))
    assert "~ /amount: 5 → 6" in perdure("diff", one, with_one, status=1).stdout
    perdure("diff", other, with_one)
    perdure("diff", one, other, "--call", "call_1", status=2)
    perdure("diff", one, status=2)


def test_diff_of_a_call_and_its_result(perdure: Perdure, write: Write) -> None:
    good = write("good.json", export())
    assert "= $['order_id']: \"A-1042\"" in perdure("diff", good, "--call", "A-1042").stdout
    bad = write("bad.json", export(user(), call(), result("B-2077"), answer()))
    text = perdure("diff", bad, "--call", "call_3c91", status=1).stdout
    assert 'asked "A-1042", answered "B-2077"' in text
    assert json.loads(perdure("diff", bad, "--call", "call_3c91", "--json", status=1).stdout)[0]["drifted"]
    assert "no call call_0" in perdure("diff", bad, "--call", "call_0", status=2).stderr
    assert "+ $['status']" in perdure("diff", good, "--call", "fc_1").stdout


def test_export_of_a_file_writes_it_masked_and_for_its_owner_alone(perdure: Perdure, write: Write) -> None:
    file, ledger = write("a.json", export(inputs=(sent(),))), write("l.json", {"order_id": "A-1042"})
    target = perdure.home / "shared.json"
    outcome = perdure("export", file, "-o", target, "--redact", "order_id", "--ledger", ledger)
    assert "1 turns, 4 items" in outcome.stderr
    assert "A-1042" not in target.read_text()
    assert json.loads(target.read_text())["ledger"] == {"order_id": "[redacted 1]"}
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert json.loads(perdure("export", file).stdout)["session"]["id"] == "sess_8f21"
    assert "cannot be written" in perdure("export", file, "-o", perdure.home / "no" / "x", status=2).stderr


@pytest.mark.parametrize(
    "words", [("chain",), ("chain", "--json"), ("path", "$.items..*"), ("path", "$..*", "--json")]
)
def test_nothing_masked_is_printed(words: tuple[str, ...], perdure: Perdure, write: Write) -> None:
    file = write("a.json", export())
    assert "A-1042" in perdure(*words, file).stdout
    assert "A-1042" not in perdure(*words, file, "--redact", "order_id,status").stdout


def test_what_others_wrote_cannot_command_the_terminal(perdure: Perdure, write: Write) -> None:
    evil = "\x1b]0;owned\x07\x9b31m \u202e \ud800 [bold]x[/bold]\r\nnext"
    history = export(
        user(evil, role=evil, status=evil),
        call(name=evil, arguments={evil: evil}),
        result(output=evil),
        answer(evil, phase=evil, turn_id=evil),
        {"id": evil, "turn_id": "turn_1", "type": evil, "status": evil},
        session=session(
            status=evil, error=evil, required_actions=[action(type=evil, call_id=evil, name=evil)]
        ),
        turns=(turn(status=evil, error={evil: evil}),),
    )
    one = write("a.json", history)
    other = write("b.json", export(user("x"), call(), result(), answer()))
    for words in (
        ("chain",),
        ("chain", "--table"),
        ("chain", "--ids"),
        ("path", "$.items..*"),
        ("diff", "--call", "fc_1"),
    ):
        text = perdure(*words[:1], *words[1:], one).stdout
        assert not {
            char for char in text if char != "\n" and (ord(char) < 32 or char in "\x7f\x9b\u202e\ud800")
        }
        assert "[bold]x[/bold]" in text
    text = perdure("diff", one, other, status=1).stdout
    assert "\x1b" not in text
    document = json.loads(perdure("path", "$.items[0].content[0].text", "--json", one).stdout)
    assert document[0]["value"] == evil


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def test_a_target_that_cannot_be_read_is_one_sentence_and_status_2(
    perdure: Perdure, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = perdure.home / "broken.json"
    broken.write_text('{"a": ')
    expected = {
        "none.json": "No such file",
        str(broken): "is not JSON",
        str(write("other.json", {"a": 1})): "neither an export",
        "sess_1": "Name the server with --url or PERDURE_URL",
    }
    for target, words in expected.items():
        outcome = perdure("chain", target, status=2)
        assert words in outcome.stderr
        assert outcome.stdout == ""
    assert "PERDURE_API_KEY" in perdure("chain", "sess_1", "--url", "http://127.0.0.1:1", status=2).stderr
    monkeypatch.setenv("PERDURE_API_KEY", "long-enough-key")
    dead = f"http://127.0.0.1:{free_port()}"
    for words in (
        ("chain", "sess_1"),
        ("path", "$.a", "sess_1"),
        ("diff", "sess_1", "sess_2"),
        ("export", "sess_1"),
    ):
        assert "cannot be reached" in perdure(*words, "--url", dead, status=2).stderr
    assert "no address of a server" in perdure("chain", "sess_1", "--url", "example.com", status=2).stderr
    missing = perdure("chain", "sess_1", "--data-dir", perdure.home / "none", status=2)
    assert "no database at" in missing.stderr
    assert not (perdure.home / "none").exists()
    assert (
        "either a server"
        in perdure("chain", "sess_1", "--url", dead, "--data-dir", perdure.home, status=2).stderr
    )


def test_a_file_that_is_no_database_and_one_without_tables_are_told(perdure: Perdure) -> None:
    file = perdure.home / "x.db"
    file.write_text("no database, and rather long for a text that is none. " * 40)
    assert "not a database" in perdure("chain", "s", "--database", f"sqlite:///{file}", status=2).stderr
    file.write_bytes(b"")
    assert "no perdure tables" in perdure("chain", "s", "--database", f"sqlite:///{file}", status=2).stderr
    assert file.read_bytes() == b""


def test_a_session_that_the_database_does_not_have_is_told(perdure: Perdure) -> None:
    perdure("keys", "list")
    assert (
        "no session sess_none"
        in perdure("chain", "sess_none", "--data-dir", perdure.data_dir, status=2).stderr
    )


def test_a_package_that_is_not_installed_is_named(
    perdure: Perdure, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = write("a.json", waiting()), write("b.json", export())
    for name in ("jsonpath_rfc9535", "jsonpatch"):
        monkeypatch.setitem(sys.modules, name, None)
    assert "jsonpath-rfc9535" in perdure("path", "$.a", before, status=2).stderr
    assert "jsonpatch" in perdure("diff", before, after, status=2).stderr
    perdure("chain", before)
