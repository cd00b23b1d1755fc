"""A model provider that costs almost nothing: the Responses protocol at the speed of the socket.

The model `deltas-N` answers with N deltas; `deltas-N-every-M` sends one of them every M milliseconds,
each in a write of its own. `deltas-N-crew-M` is a coordinator where it is offered subagents: asked to
`FAN_OUT`, it creates M of them, waits, and answers; they answer like `deltas-N`, or, behind `-hangs`,
begin to and say nothing more. Answers are encoded in advance, so that the provider is never what is
measured. Run as a process: `python -m bench.provider`.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import re
import sys
from collections import deque
from collections.abc import Iterator
from typing import Literal, cast

import orjson
import uvloop

MODEL = re.compile(rb'"model":\s*"deltas-(\d+)(?:-every-(\d+))?(?:-crew-(\d+)(-hangs)?)?"')
FAN_OUT = "Let subagents look at it."
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
REFUSAL = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
END = b"0\r\n\r\n"
MARK = b"________"
SLICE = 64

_numbers = itertools.count(1)


def piece(index: int) -> str:
    """The text of one delta, about as long as a token."""
    return f" {index % 10000:04d}"


@functools.cache
def answer_text(count: int) -> str:
    """The whole text of an answer of `count` deltas."""
    return "".join(piece(index) for index in range(count))


def _chunk(event: dict[str, object], number: int) -> bytes:
    """One event as one chunk of a chunked body, the way providers flush them."""
    data = orjson.dumps({**event, "sequence_number": number})
    frame = b"event: %b\ndata: %b\n\n" % (str(event["type"]).encode(), data)
    return b"%x\r\n%b\r\n" % (len(frame), frame)


def _response() -> dict[str, object]:
    return {
        "id": f"resp_{MARK.decode()}",
        "object": "response",
        "created_at": 1_760_000_000,
        "status": "in_progress",
        "model": "deltas",
        "output": [],
        "error": None,
        "usage": None,
    }


def _usage(count: int) -> dict[str, object]:
    return {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": count,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 10 + count,
    }


def _events(count: int) -> Iterator[dict[str, object]]:
    mark = MARK.decode()
    text = answer_text(count)
    response = _response()
    message = {"id": f"msg_{mark}", "type": "message", "role": "assistant", "status": "completed"}
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    of_item = {"item_id": message["id"], "output_index": 0}
    of_part = {**of_item, "content_index": 0}
    added = {**message, "status": "in_progress", "content": []}
    done = {**message, "content": [part]}
    yield {"type": "response.created", "response": response}
    yield {"type": "response.in_progress", "response": response}
    yield {"type": "response.output_item.added", "output_index": 0, "item": added}
    yield {"type": "response.content_part.added", **of_part, "part": {**part, "text": ""}}
    for index in range(count):
        yield {"type": "response.output_text.delta", **of_part, "delta": piece(index), "logprobs": []}
    yield {"type": "response.output_text.done", **of_part, "text": text, "logprobs": []}
    yield {"type": "response.content_part.done", **of_part, "part": part}
    yield {"type": "response.output_item.done", "output_index": 0, "item": done}
    final = {**response, "status": "completed", "output": [done], "usage": _usage(count)}
    yield {"type": "response.completed", "response": final}


def _calls(children: int) -> Iterator[dict[str, object]]:
    """A coordinator's first step: it creates so many subagents and waits for all of them."""
    task = orjson.dumps({"task": "Look at your part of it."}).decode()
    made = [("create_subagent", task)] * children + [("wait_for_subagents", "{}")]
    response = _response()
    output = []
    yield {"type": "response.created", "response": response}
    for index, (name, arguments) in enumerate(made):
        mark = f"{MARK.decode()}_{index}"
        item = {"id": f"fc_{mark}", "type": "function_call", "call_id": f"call_{mark}", "name": name}
        place = {"item_id": item["id"], "output_index": index}
        begun = {**item, "status": "in_progress", "arguments": ""}
        done = {**item, "status": "completed", "arguments": arguments}
        yield {"type": "response.output_item.added", "output_index": index, "item": begun}
        yield {"type": "response.function_call_arguments.delta", **place, "delta": arguments}
        yield {"type": "response.function_call_arguments.done", **place, "arguments": arguments}
        yield {"type": "response.output_item.done", "output_index": index, "item": done}
        output.append(done)
    final = {**response, "status": "completed", "output": output, "usage": _usage(len(made))}
    yield {"type": "response.completed", "response": final}


@functools.cache
def _fan_out(children: int) -> bytes:
    return b"".join([HEAD, *(_chunk(event, number) for number, event in enumerate(_calls(children))), END])


@functools.cache
def _slices(count: int, size: int) -> tuple[bytes, ...]:
    """The answer as pieces to write: the opening events, `size` deltas each, the closing events."""
    chunks = [_chunk(event, number) for number, event in enumerate(_events(count))]
    opening, deltas, closing = chunks[:4], chunks[4 : 4 + count], chunks[4 + count :]
    groups = [deltas[start : start + size] for start in range(0, count, size)]
    return tuple(b"".join(group) for group in ([HEAD, *opening], *groups, [*closing, END]))


Part = Literal["begins", "answers", "child"]


def _part_of(body: bytes) -> Part:
    """Which part of a crew's work a request asks for: its functions and what is newest tell."""
    if b'"create_subagent"' not in body:
        return "child"
    return "begins" if body.rfind(FAN_OUT.encode()) > body.rfind(b'"function_call_output"') else "answers"


class Provider(asyncio.Protocol):
    """One connection; requests are answered one after the other."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._unsent: deque[bytes] = deque()
        self._pause = 0.0
        self._writable = True
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # No isinstance: uvloop's transports do not inherit from asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._loop = asyncio.get_running_loop()

    def connection_lost(self, error: Exception | None) -> None:
        self._unsent.clear()
        if self._timer is not None:
            self._timer.cancel()

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._send()

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._received[:end]).lower()
            length = re.search(rb"\r\ncontent-length: *(\d+)", head)
            total = end + 4 + (int(length[1]) if length else 0)
            if len(self._received) < total:
                return
            # The model's name stands at the front of the body; the rest matters to crews alone.
            model = MODEL.search(bytes(self._received[end : min(total, end + 400)]))
            part = None
            if model is not None and model[3]:
                part = _part_of(bytes(self._received[end:total]))
            del self._received[:total]
            self._answer(model, part)

    def _answer(self, model: re.Match[bytes] | None, part: Part | None) -> None:
        if model is None:
            self._transport.write(REFUSAL)
            return
        pause = int(model[2] or 0) / 1000
        number = b"%08x" % next(_numbers)
        slices = _slices(int(model[1]), 1 if pause else SLICE)
        if part == "begins":
            slices = (_fan_out(int(model[3])),)
        elif part == "child" and model[4]:
            slices = slices[:1]
        self._unsent.extend(each.replace(MARK, number) for each in slices)
        self._pause = pause
        if pause:
            self._send_paced()
        else:
            self._send()

    def _send(self) -> None:
        while self._unsent and self._writable and not self._pause:
            self._transport.write(self._unsent.popleft())

    def _send_paced(self) -> None:
        if self._unsent:
            self._transport.write(self._unsent.popleft())
            self._timer = self._loop.call_later(self._pause, self._send_paced)


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(Provider, "127.0.0.1", 0, backlog=1024)
    print(f"listening on http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    # The parent closes our standard input when it ends, however it ends.
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(_serve())
