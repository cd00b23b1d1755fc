from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator

import pytest

from perdure.config.logging import StderrHandler, configure_logging, log_context
from perdure.config.sections import LogSettings
from perdure.secrets.redaction import Redactor

SECRET = 'pass"word-0123456789'


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)


def start(stream: io.StringIO, settings: LogSettings | None = None) -> logging.Logger:
    configure_logging(settings or LogSettings(), Redactor([SECRET]).redact, stream=stream)
    return logging.getLogger("perdure.test")


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_pipe_gets_one_json_object_per_line() -> None:
    stream = io.StringIO()
    start(stream).info("started\non %s", 8700, extra={"port": 8700, "models": ("a", "b")})
    (line,) = lines(stream)
    assert line["level"] == "info"
    assert line["logger"] == "perdure.test"
    assert line["message"] == "started\non 8700"
    assert (line["port"], line["models"]) == (8700, ["a", "b"])
    assert str(line["time"]).endswith("+00:00")
    assert "request_id" not in line


def test_a_terminal_gets_text_in_which_nothing_can_pose_as_a_line_or_a_command() -> None:
    stream = Terminal()
    start(stream).warning("agent %s", "x\n12:00:00 error perdure: forged\x1b[2J", extra={"n": 1})
    (text,) = stream.getvalue().splitlines()
    assert "warning perdure.test: agent x\\x0a" in text
    assert "\x1b" not in text
    assert text.endswith("n=1")


def test_the_format_can_be_configured_against_the_stream() -> None:
    stream = Terminal()
    start(stream, LogSettings(format="json")).info("x")
    assert lines(stream)[0]["message"] == "x"
    stream = io.StringIO()
    start(stream, LogSettings(format="text")).info("plain")
    assert stream.getvalue().endswith("perdure.test: plain\n")


def test_the_level_holds_for_every_logger() -> None:
    stream = io.StringIO()
    start(stream, LogSettings(level="warning"))
    logging.getLogger("somebody.else").info("quiet")
    logging.getLogger("somebody.else").warning("loud")
    assert [line["message"] for line in lines(stream)] == ["loud"]


async def test_lines_carry_the_ids_of_their_context_across_tasks() -> None:
    stream = io.StringIO()
    log = start(stream)

    async def work(name: str) -> None:
        with log_context(request=f"req_{name}"):
            await asyncio.sleep(0)
            with log_context(session=f"sess_{name}"):
                await asyncio.create_task(asyncio.sleep(0))
                log.info(name)
            log.info(name)

    async with asyncio.TaskGroup() as group:
        group.create_task(work("a"))
        group.create_task(work("b"))
    log.info("after")
    *inside, after = lines(stream)
    assert sorted((line["message"], line["request_id"], line.get("session_id", "")) for line in inside) == [
        ("a", "req_a", ""),
        ("a", "req_a", "sess_a"),
        ("b", "req_b", ""),
        ("b", "req_b", "sess_b"),
    ]
    assert "request_id" not in after


def test_secrets_are_taken_out_of_messages_fields_and_tracebacks() -> None:
    for stream in (io.StringIO(), Terminal()):
        log = start(stream)
        try:
            raise ValueError(f"refused {SECRET}")
        except ValueError:
            log.exception(
                "with %s", SECRET, extra={"header": {"X": [SECRET]}, "plain": "Bearer abcdefgh12345"}
            )
        written = stream.getvalue()
        assert "word-0123456789" not in written
        assert "abcdefgh12345" not in written
        assert "ValueError: refused [redacted]" in written


def test_an_object_that_json_does_not_know_is_written_as_its_text() -> None:
    stream = io.StringIO()
    start(stream).info("x", extra={"error": ValueError(SECRET), "where": {"a": None, 3: 1.5}})
    (line,) = lines(stream)
    assert line["error"] == "[redacted]"
    assert line["where"] == {"a": None, "3": 1.5}


def test_configuring_again_replaces_only_our_handler() -> None:
    other = logging.NullHandler()
    logging.getLogger().addHandler(other)
    first, second = io.StringIO(), io.StringIO()
    start(first)
    start(second).info("once")
    assert first.getvalue() == ""
    assert len(lines(second)) == 1
    handlers = logging.getLogger().handlers
    assert other in handlers
    assert sum(isinstance(handler, StderrHandler) for handler in handlers) == 1
