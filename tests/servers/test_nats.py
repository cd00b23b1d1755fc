"""The NATS server of the tests."""

from __future__ import annotations

import asyncio
import signal

import nats
import psutil
import pytest
from tests.nats import NatsServer, absence

from .runs import is_gone, other_run, wait_until

OTHER_RUN = """
import sys
from tests.nats import NatsServer
with NatsServer() as server:
    print(server.pid, flush=True)
    sys.stdin.read()
"""

pytestmark = pytest.mark.skipif(absence() is not None, reason=str(absence()))


async def delivered(url: str) -> bytes:
    """What one client receives of what another sends."""
    receiver, sender = await nats.connect(url), await nats.connect(url)
    subscription = await receiver.subscribe("greetings")
    await receiver.flush()
    await sender.publish("greetings", b"hello")
    message = await subscription.next_msg(timeout=30)
    await asyncio.gather(receiver.close(), sender.close())
    return message.data


async def test_a_message_reaches_another_client(nats_url: str) -> None:
    assert await delivered(nats_url) == b"hello"


async def test_it_comes_back_at_the_same_address() -> None:
    with NatsServer() as server:
        url = server.url
        for interrupt in (server.kill, server.stop):
            interrupt()
            assert not server.is_running
            assert await delivered(server.start().url) == b"hello"
        assert server.url == url
        process = psutil.Process(server.pid)
    assert not process.is_running()


def test_nothing_is_left_when_the_test_run_is_killed() -> None:
    with other_run(OTHER_RUN) as run:
        assert run.stdout is not None
        server = psutil.Process(int(run.stdout.readline()))
        run.send_signal(signal.SIGKILL)
        wait_until(lambda: is_gone(server))
