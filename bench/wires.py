"""`wires`: what reading one delta of a provider's stream costs, beside the provider's own SDK.

One provider process speaks all four protocols from answers encoded in advance. Each reader is a process of
its own on the same core: it asks for the same answers, checks the whole text, and tells its CPU time.
`python -m bench.wires provider` and `python -m bench.wires reader NAME` are those processes.
"""

from __future__ import annotations

import asyncio
import functools
import re
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import orjson
import uvloop

from bench.machine import cores
from bench.processes import Running, start
from bench.provider import answer_text, piece
from bench.report import Row

WIRES = ("responses", "chat", "anthropic", "gemini")
SDKS = {"responses": "openai", "chat": "openai", "anthropic": "anthropic", "gemini": "google-genai"}
LIMITS = {"responses": 8.0, "chat": 8.0, "anthropic": 8.0, "gemini": 12.0}
PACE_MS = 1
PATH = re.compile(rb"POST /(\d+)/(\d+)/\S*?(responses|chat|messages|streamGenerateContent)")
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
SLICE = 64

Json = dict[str, Any]
Texts = Callable[[str], AsyncIterator[str]]


def measure(directory: Path, smoke: bool) -> list[Row]:
    """One answer as fast as it goes, then one whose deltas come one at a time, for each protocol."""
    count, paced, times = (500, 50, 1) if smoke else (20_000, 2_000, 3)
    rows: list[Row] = []
    log = directory / "wires.log"
    with start(["-m", "bench.wires", "provider"], log, core=cores()[1]) as provider:
        for wire in WIRES:
            ours, theirs = (_cost(log, provider, name, count, paced, times) for name in (wire, f"{wire}-sdk"))
            sdk = f"{SDKS[wire]} SDK"
            what = f"{wire}, deltas as fast as they come"
            limit = None if smoke else LIMITS[wire]
            rows.append(Row(what, ours[0], "µs", limit, beside=theirs[0], beside_what=sdk))
            what = f"{wire}, one delta every {PACE_MS} ms"
            rows.append(Row(what, ours[1], "µs", beside=theirs[1], beside_what=sdk))
    return rows


def _cost(log: Path, provider: Running, name: str, count: int, paced: int, times: int) -> tuple[float, float]:
    """CPU microseconds a delta: as fast as they come, and one at a time; the best of several answers."""
    with start(["-m", "bench.wires", "reader", name], log, core=cores()[0]) as reader:

        def ask(deltas: int, pause: int) -> float:
            assert reader.process.stdin is not None
            assert reader.process.stdout is not None
            url = f"http://127.0.0.1:{provider.port}/{deltas}/{pause}"
            reader.process.stdin.write(orjson.dumps({"url": url, "deltas": deltas}).decode() + "\n")
            reader.process.stdin.flush()
            line = reader.process.stdout.readline()
            if not line:
                raise RuntimeError(f"the reader {name} ended; see its log")
            return float(orjson.loads(line)) / deltas * 1e6

        ask(count // 10, 0)
        return min(ask(count, 0) for _ in range(times)), min(ask(paced, PACE_MS) for _ in range(times))


# ---- the readers -------------------------------------------------------------------------------


async def _read(name: str) -> None:
    texts = _ours(name) if name in WIRES else _sdk(name.removesuffix("-sdk"))
    print("listening on standard input", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        command = orjson.loads(line)
        expected = answer_text(command["deltas"])
        began = time.process_time()
        async with aclosing(texts(command["url"])) as deltas:  # type: ignore[type-var]
            read = [text async for text in deltas]
        cpu = time.process_time() - began
        if "".join(read) != expected or len(read) != command["deltas"]:
            raise RuntimeError(f"{name}: {len(read)} of {command['deltas']} deltas arrived, or other ones")
        print(cpu, flush=True)


def _ours(wire: str) -> Texts:
    """The deltas of an answer as our adapter tells them."""
    from perdure.config.settings import ProviderSettings, Settings
    from perdure.models.messages import ModelRequest, TextDelta, TextPart, UserMessage
    from perdure.models.registry import Registry

    registries: dict[str, Registry] = {}

    async def texts(url: str) -> AsyncIterator[str]:
        if url not in registries:
            base = url if wire == "gemini" else f"{url}/v1"
            given = {"name": "fake", "protocol": wire, "base_url": base, "api_key": "bench-key"}
            registries[url] = Registry(Settings(provider=(ProviderSettings.model_validate(given),)))
        model = registries[url].resolve("deltas").model
        request = ModelRequest("deltas", "Be brief.", (UserMessage((TextPart("Go on."),)),))
        async with aclosing(model.stream(request)) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    yield event.text

    return texts


def _sdk(wire: str) -> Texts:
    """The deltas of an answer as the provider's own asynchronous client tells them."""
    return {"responses": _openai_responses, "chat": _openai_chat, "anthropic": _anthropic, "gemini": _genai}[
        wire
    ]


async def _openai_responses(url: str) -> AsyncIterator[str]:
    from openai import AsyncOpenAI

    async with AsyncOpenAI(api_key="bench-key", base_url=f"{url}/v1") as client:
        async for event in await client.responses.create(model="deltas", input="Go on.", stream=True):
            if event.type == "response.output_text.delta":
                yield event.delta


async def _openai_chat(url: str) -> AsyncIterator[str]:
    from openai import AsyncOpenAI

    async with AsyncOpenAI(api_key="bench-key", base_url=f"{url}/v1") as client:
        async for chunk in await client.chat.completions.create(
            model="deltas", messages=[{"role": "user", "content": "Go on."}], stream=True
        ):
            if chunk.choices and (text := chunk.choices[0].delta.content):
                yield text


async def _anthropic(url: str) -> AsyncIterator[str]:
    from anthropic import AsyncAnthropic

    async with AsyncAnthropic(api_key="bench-key", base_url=url) as client:
        async for event in await client.messages.create(
            model="deltas", max_tokens=100, messages=[{"role": "user", "content": "Go on."}], stream=True
        ):
            if event.type == "content_block_delta" and event.delta.type == "text_delta":
                yield event.delta.text


async def _genai(url: str) -> AsyncIterator[str]:
    from google import genai

    client = genai.Client(api_key="bench-key", http_options=genai.types.HttpOptions(base_url=url))
    async for chunk in await client.aio.models.generate_content_stream(model="deltas", contents="Go on."):
        if text := chunk.text:
            yield text
    await client.aio.aclose()


# ---- the provider ------------------------------------------------------------------------------


def _frames(protocol: str, count: int) -> tuple[list[Json], list[Json], list[Json]]:
    """What comes before the deltas of an answer, the deltas, and what comes behind them."""
    texts, whole = [piece(index) for index in range(count)], answer_text(count)
    match protocol:
        case "responses":
            return _responses_frames(texts, whole)
        case "chat":
            shared = {
                "id": "chatcmpl-1",
                "object": "chat.completion.chunk",
                "created": 1_760_000_000,
                "model": "deltas",
            }

            def chunk(delta: Json, reason: str | None = None) -> Json:
                return {**shared, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

            usage = {"prompt_tokens": 10, "completion_tokens": count, "total_tokens": 10 + count}
            return (
                [chunk({"role": "assistant", "content": ""})],
                [chunk({"content": text}) for text in texts],
                [chunk({}, "stop"), {**shared, "choices": [], "usage": usage}],
            )
        case "messages":
            return _anthropic_frames(texts)
    usage = {"promptTokenCount": 10, "candidatesTokenCount": count, "totalTokenCount": 10 + count}
    shared = {"usageMetadata": usage, "modelVersion": "deltas", "responseId": "1"}

    def candidate(text: str, **more: str) -> Json:
        content = {"parts": [{"text": text}], "role": "model"}
        return {"candidates": [{"content": content, "index": 0, **more}], **shared}

    return [], [candidate(text) for text in texts], [candidate("", finishReason="STOP")]


def _responses_frames(texts: list[str], whole: str) -> tuple[list[Json], list[Json], list[Json]]:
    response: Json = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1_760_000_000,
        "status": "in_progress",
        "model": "deltas",
        "output": [],
    }
    message: Json = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}
    part: Json = {"type": "output_text", "text": whole, "annotations": [], "logprobs": []}
    place: Json = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    item = {**message, "content": [part]}
    usage = {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": len(texts),
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 10 + len(texts),
    }
    begun = {**message, "status": "in_progress", "content": []}
    before: list[Json] = [
        {"type": "response.created", "response": response},
        {"type": "response.output_item.added", "output_index": 0, "item": begun},
        {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
    ]
    delta: Json = {"type": "response.output_text.delta", **place, "logprobs": []}
    deltas = [{**delta, "delta": text} for text in texts]
    final = {**response, "status": "completed", "output": [item], "usage": usage}
    behind: list[Json] = [
        {"type": "response.output_text.done", **place, "text": whole, "logprobs": []},
        {"type": "response.content_part.done", **place, "part": part},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": final},
    ]
    every = [*before, *deltas, *behind]
    for number, event in enumerate(every):
        event["sequence_number"] = number
    return before, deltas, behind


def _anthropic_frames(texts: list[str]) -> tuple[list[Json], list[Json], list[Json]]:
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "deltas",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 1},
    }
    text: Json = {"type": "text", "text": ""}
    end = {"stop_reason": "end_turn", "stop_sequence": None}
    delta: Json = {"type": "content_block_delta", "index": 0}
    return (
        [
            {"type": "message_start", "message": message},
            {"type": "content_block_start", "index": 0, "content_block": text},
        ],
        [{**delta, "delta": {"type": "text_delta", "text": text}} for text in texts],
        [
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": end, "usage": {"output_tokens": len(texts)}},
            {"type": "message_stop"},
        ],
    )


def _encoded(frame: Json) -> bytes:
    """One frame as one chunk of a chunked body; events with a type are named after it."""
    name = b"event: %b\n" % frame["type"].encode() if "type" in frame else b""
    data = b"%bdata: %b\n\n" % (name, orjson.dumps(frame))
    return b"%x\r\n%b\r\n" % (len(data), data)


@functools.cache
def _writes(protocol: str, count: int, size: int) -> tuple[bytes, ...]:
    """An answer as the pieces that are written at once: `size` deltas each."""

    def grouped() -> Iterator[bytes]:
        before, deltas, behind = _frames(protocol, count)
        yield HEAD + b"".join(map(_encoded, before))
        for first in range(0, count, size):
            yield b"".join(map(_encoded, deltas[first : first + size]))
        done = b"e\r\ndata: [DONE]\n\n\r\n" if protocol == "chat" else b""
        yield b"".join(map(_encoded, behind)) + done + b"0\r\n\r\n"

    return tuple(grouped())


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection: the address of a request says how many deltas it wants, and how fast."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"\r\ncontent-length: *(\d+)", head.lower())
            await reader.readexactly(int(length[1]) if length else 0)
            wanted = PATH.match(head)
            if wanted is None:
                raise RuntimeError(f"an unknown request: {head[:200]!r}")
            count, pause, protocol = int(wanted[1]), int(wanted[2]), wanted[3].decode()
            for data in _writes(protocol, count, 1 if pause else SLICE):
                writer.write(data)
                await writer.drain()
                if pause:
                    await asyncio.sleep(pause / 1000)
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def _serve() -> None:
    server = await asyncio.start_server(_answer, "127.0.0.1", 0)
    print(f"listening on http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    # The parent closes our standard input when it ends, however it ends.
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(_serve() if sys.argv[1] == "provider" else _read(sys.argv[2]))
