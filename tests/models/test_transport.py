from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
from tests.models.wires import WIRES, Wire, ask, collect, fail, finish_of, text_of, user
from tests.providers.answers import Answer, Raw, Refusal, Silence, Text, answer
from tests.providers.server import FakeProvider

from perdure.models.messages import Model, TextDelta, UsageTold
from perdure.models.transport import Transport

WORDS = "Grüße, 世界 \U0001f600! And more words."


CREDENTIALS = {"anthropic": ("x-api-key", "test-key"), "gemini": ("x-goog-api-key", "test-key")}


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> Wire:
    return WIRES[request.param]


@pytest.fixture
async def provider(wire: Wire) -> AsyncIterator[FakeProvider]:
    async with wire.provider() as provider:
        yield provider
        assert provider.violations == []


@pytest.fixture
async def model(wire: Wire, provider: FakeProvider) -> AsyncIterator[Model]:
    model = wire.model(provider.settings())
    yield model
    await model.close()


async def test_one_connection_serves_call_after_call(provider: FakeProvider, model: Model) -> None:
    for _ in range(5):
        finish_of(await collect(model))
        await provider.requests[-1].served.wait()
        await asyncio.sleep(0.01)
    assert len({request.connection for request in provider.requests}) == 1


async def test_calls_run_beside_each_other(provider: FakeProvider, model: Model) -> None:
    provider.planner = lambda _: answer(Text(WORDS), delay=0.005)
    answers = await asyncio.gather(*(collect(model) for _ in range(20)))
    assert [text_of(events) for events in answers] == [WORDS] * 20


async def test_adapters_may_share_a_transport(wire: Wire, provider: FakeProvider) -> None:
    transport = Transport()
    first, second = (wire.model(provider.settings(name), transport) for name in ("one", "two"))
    await collect(first)
    await first.close()
    await asyncio.sleep(0.01)
    await collect(second)
    assert len({request.connection for request in provider.requests}) == 1
    await transport.close()


async def test_a_closed_adapter_may_be_used_again(provider: FakeProvider, model: Model) -> None:
    await collect(model)
    await model.close()
    assert text_of(await collect(model)) == "You said: Hello"


async def test_closing_the_iterator_closes_the_connection(provider: FakeProvider, model: Model) -> None:
    provider.queue(answer(Text(WORDS, chunks=4), hang_after=6))
    async with aclosing(model.stream(ask())) as events:  # type: ignore[type-var]
        async for event in events:
            if isinstance(event, UsageTold):
                continue
            assert isinstance(event, TextDelta)
            break
    await asyncio.wait_for(provider.requests[0].left.wait(), 5)


async def test_cancelling_closes_the_connection(provider: FakeProvider, model: Model) -> None:
    provider.queue(Silence())
    task = asyncio.create_task(collect(model))
    request = await provider.request(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(request.left.wait(), 5)


@pytest.mark.parametrize("write_size", [1, 2, 7, 64, 100_000])
@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
async def test_chunks_may_be_cut_anywhere(
    provider: FakeProvider, model: Model, write_size: int, newline: bytes
) -> None:
    preamble = b"\xef\xbb\xbf: hello" + newline * 2
    provider.queue(answer(Text(WORDS, chunks=3), write_size=write_size, newline=newline, preamble=preamble))
    events = await collect(model)
    assert text_of(events) == WORDS
    assert finish_of(events).usage is not None


async def test_a_slow_stream_is_no_silence(wire: Wire, provider: FakeProvider) -> None:
    provider.queue(answer(Text(WORDS, chunks=2), delay=0.03))
    model = wire.model(provider.settings(timeout=0.2))
    assert text_of(await collect(model)) == WORDS
    await model.close()


@pytest.mark.parametrize("plan", [Silence(), answer(Text(WORDS, chunks=4), hang_after=6)])
async def test_silence_ends_as_a_time_out(wire: Wire, provider: FakeProvider, plan: Any) -> None:
    provider.queue(plan)
    model = wire.model(provider.settings(timeout=0.15))
    seen, error = await fail(model)
    assert (error.code, error.retryable) == ("request_timeout", True)
    assert bool(seen) == isinstance(plan, Answer)
    await model.close()


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("frames", [0, 1, 6])
async def test_a_cut_stream_is_a_failed_connection(
    provider: FakeProvider, model: Model, frames: int, reset: bool
) -> None:
    provider.queue(answer(Text(WORDS, chunks=4), cut_after=frames, reset=reset))
    _, error = await fail(model)
    assert (error.code, error.retryable, error.status) == ("connection_failed", True, None)


async def test_a_frame_cut_in_half_is_a_failed_connection(provider: FakeProvider, model: Model) -> None:
    provider.queue(Raw((b'data: {"choices":[{"delta":{"con',)))
    _, error = await fail(model)
    assert error.code == "connection_failed"


async def test_nobody_listens(wire: Wire, provider: FakeProvider) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        model = wire.model(provider.settings(base_url=address))
        _, error = await fail(model)
    assert (error.code, error.retryable) == ("connection_failed", True)
    await model.close()


async def test_a_host_that_does_not_exist(wire: Wire, provider: FakeProvider) -> None:
    model = wire.model(provider.settings(base_url="http://no-such-host.invalid/v1"))
    _, error = await fail(model)
    assert (error.code, error.retryable) == ("connection_failed", True)
    assert "no-such-host.invalid" in error.message
    await model.close()


async def test_a_server_that_speaks_no_tls(wire: Wire, provider: FakeProvider) -> None:
    model = wire.model(provider.settings(base_url=provider.base_url.replace("http://", "https://")))
    _, error = await fail(model)
    assert error.code == "connection_failed"
    await model.close()


async def test_a_server_that_speaks_no_http(wire: Wire, provider: FakeProvider) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"220 mail.example ESMTP\r\n")
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        model = wire.model(provider.settings(base_url=f"http://127.0.0.1:{port}/v1"))
        _, error = await fail(model)
        assert error.code == "connection_failed"
        await model.close()


async def test_a_redirect_is_not_followed(provider: FakeProvider, model: Model) -> None:
    provider.queue(Refusal(307, headers={"Location": f"{provider.base_url}/elsewhere"}, body=b""))
    _, error = await fail(model)
    assert (error.code, error.retryable) == ("invalid_request", False)
    assert "base_url" in error.message
    assert len(provider.requests) == 1


async def test_a_web_page_is_a_wrong_address(provider: FakeProvider, model: Model) -> None:
    provider.queue(Raw((b"<html>Welcome!</html>",), content_type="text/html"))
    _, error = await fail(model)
    assert (error.code, error.retryable) == ("invalid_request", False)
    assert "base_url" in error.message


async def test_an_event_that_is_no_json(provider: FakeProvider, model: Model) -> None:
    provider.queue(Raw((b"data: {not json}\n\n",)))
    _, error = await fail(model)
    assert (error.code, error.retryable) == ("server_error", True)


@pytest.mark.parametrize("error", [{"error": {"message": "No.", "code": "rate_limit_exceeded"}}])
async def test_an_error_as_a_body_with_status_200(provider: FakeProvider, model: Model, error: Any) -> None:
    provider.queue(Raw((str(error).replace("'", '"').encode(),), content_type="application/json"))
    _, made = await fail(model)
    assert (made.code, made.retryable) == ("rate_limit_exceeded", True)


async def test_a_stream_under_a_wrong_name_is_read(provider: FakeProvider, model: Model) -> None:
    body = {"model": "test-model", "input": [], "messages": []}
    frames = tuple(provider.frames(body, answer(Text(WORDS))))
    provider.queue(Raw(frames, content_type="application/json"))
    assert text_of(await collect(model)) == WORDS


async def test_http_errors_carry_status_and_waiting_time(provider: FakeProvider, model: Model) -> None:
    provider.queue(Refusal(429, "rate_limit_exceeded", headers={"Retry-After": "7"}))
    seen, error = await fail(model)
    assert seen == []
    assert (error.code, error.status, error.retry_after) == ("rate_limit_exceeded", 429, 7.0)


async def test_a_wrong_key_is_told_without_the_key(wire: Wire, provider: FakeProvider) -> None:
    model = wire.model(provider.settings(api_key="not-the-key-at-all"))
    _, error = await fail(model)
    assert error.code == "authentication_error"
    assert "not-the-key" not in error.message
    await model.close()


async def test_a_body_too_large_is_told_by_its_status(wire: Wire) -> None:
    async with wire.provider(max_body=1000) as provider:
        model = wire.model(provider.settings())
        _, error = await fail(model, ask(user("x" * 2000)))
        assert (error.code, error.status) == ("invalid_request", 413)
        await model.close()


async def test_a_context_too_large(wire: Wire) -> None:
    async with wire.provider(context_window=1000) as provider:
        model = wire.model(provider.settings())
        _, error = await fail(model, ask(user("x" * 8000)))
        assert (error.code, error.retryable) == ("context_length_exceeded", False)
        await model.close()


@pytest.mark.filterwarnings("error::ResourceWarning")
async def test_a_large_request_arrives_whole(provider: FakeProvider, model: Model) -> None:
    text = "long " * 500_000
    await collect(model, ask(user(text)))
    assert text in str(provider.requests[0].body)


async def test_configured_headers_go_along_and_win(wire: Wire, provider: FakeProvider) -> None:
    name, value = CREDENTIALS.get(provider.PROTOCOL, ("authorization", "Bearer test-key"))
    model = wire.model(provider.settings(api_key="wrong", headers={name: value, "x-team": "blue"}))
    await collect(model)
    headers = provider.requests[0].headers
    assert headers["X-Team"] == "blue"
    assert headers[name] == value
    assert headers["User-Agent"].startswith("perdure/")
    await model.close()


async def test_text_that_is_no_unicode_is_sent_and_read_as_replacement(
    provider: FakeProvider, model: Model
) -> None:
    await collect(model, ask(user("a\ud800b\0c")))
    assert "a\ufffdb\\x00c" in str(provider.requests[0].body)


async def test_proxies_of_the_environment_are_used(
    wire: Wire, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", provider.base_url.removesuffix("/v1"))
    monkeypatch.setenv("no_proxy", "internal.example")
    model = wire.model(provider.settings(base_url="http://model.example/v1"))
    assert text_of(await collect(model)) == "You said: Hello"
    assert provider.requests[0].headers["Host"] == "model.example"
    await model.close()
    model = wire.model(provider.settings(base_url="http://internal.example/v1"))
    _, error = await fail(model)
    assert error.code == "connection_failed"
    await model.close()
