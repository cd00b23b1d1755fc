"""HTTP/1.1 on a bare socket: requests no client library would send, and streams byte by byte."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, BinaryIO, Self

from .watch import DEADLINE

Headers = list[tuple[str, str]]
Address = tuple[str, int]


@dataclass(frozen=True)
class RawResponse:
    status: int
    headers: Headers
    body: bytes

    def header(self, name: str) -> str | None:
        return header(self.headers, name)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The inner object of an error body; its envelope must be complete."""
        assert (self.header("content-type") or "").startswith("application/json"), self.headers
        assert list(self.json) == ["error"], self.body
        error: dict[str, Any] = self.json["error"]
        assert set(error) == {"message", "type", "code", "param"}, self.body
        assert isinstance(error["message"], str)
        assert error["message"]
        return error


def header(headers: Headers, name: str) -> str | None:
    values = [value for key, value in headers if key.lower() == name.lower()]
    assert len(values) <= 1, f"{name} is repeated: {values}"
    return values[0] if values else None


def request_bytes(method: str, target: str, headers: Headers, body: bytes | None) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "Host: perdure.test"]
    lines += [f"{name}: {value}" for name, value in headers]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (body or b"")


def exchange(
    address: Address, method: str, target: str, headers: Headers = (), body: bytes | None = None
) -> RawResponse:
    """One request with exactly this target, these headers and this body, on a connection of its own."""
    with socket.create_connection(address, DEADLINE) as connection:
        connection.sendall(request_bytes(method, target, [*headers, ("Connection", "close")], body))
        with connection.makefile("rb") as reader:
            status, received = read_head(reader)
            return RawResponse(status, received, b"".join(read_body(reader, received)))


def read_head(reader: BinaryIO) -> tuple[int, Headers]:
    status_line = reader.readline().decode("latin-1")
    assert status_line.startswith("HTTP/1.1 "), status_line
    headers: Headers = []
    while (line := reader.readline().decode("latin-1").rstrip("\r\n")) != "":
        name, _, value = line.partition(":")
        headers.append((name.strip(), value.strip()))
    return int(status_line.split(" ")[1]), headers


def read_body(reader: BinaryIO, headers: Headers) -> Iterator[bytes]:
    """The body as it arrives; a body cut short raises."""
    if (header(headers, "transfer-encoding") or "").lower() == "chunked":
        while (size := int(reader.readline().split(b";")[0], 16)) > 0:
            yield _exactly(reader, size)
            assert reader.readline() == b"\r\n"
        reader.readline()
    elif (length := header(headers, "content-length")) is not None:
        yield _exactly(reader, int(length))
    else:
        while data := reader.read1(65536):
            yield data


def _exactly(reader: BinaryIO, size: int) -> bytes:
    data = reader.read(size)
    if len(data) < size:
        raise EOFError(f"the body ended {size - len(data)} bytes early")
    return data


class EventSocket:
    """One event stream on a bare socket, frame by frame, comments included."""

    def __init__(
        self,
        address: Address,
        method: str,
        target: str,
        headers: Headers,
        body: bytes | None = None,
        *,
        receive_buffer: int | None = None,
    ) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._socket.settimeout(DEADLINE)
        self._socket.connect(address)
        self._socket.sendall(request_bytes(method, target, headers, body))
        self._reader = self._socket.makefile("rb")
        self.status, self.headers = read_head(self._reader)
        self._chunks = read_body(self._reader, self.headers)
        self._buffer = b""

    def header(self, name: str) -> str | None:
        return header(self.headers, name)

    def frame(self) -> bytes | None:
        """The next frame with its blank line, or None at an orderly end of the stream."""
        while b"\n\n" not in self._buffer:
            chunk = next(self._chunks, None)
            if chunk is None:
                assert self._buffer == b"", f"the stream ended inside a frame: {self._buffer!r}"
                return None
            self._buffer += chunk
        frame, self._buffer = self._buffer.split(b"\n\n", 1)
        return frame + b"\n\n"

    def frames(self) -> Iterator[bytes]:
        while (frame := self.frame()) is not None:
            yield frame

    def events(self) -> Iterator[dict[str, Any]]:
        """The frames that are not comments, each checked for its form and decoded."""
        for frame in self.frames():
            if not is_comment(frame):
                yield decode(frame)

    def events_to(self, kind: str) -> list[dict[str, Any]]:
        """The events up to and including the first of this type."""
        seen: list[dict[str, Any]] = []
        for event in self.events():
            seen.append(event)
            if event["type"] == kind:
                return seen
        raise AssertionError(f"the stream ended before {kind}: {[event['type'] for event in seen]}")

    def close(self) -> None:
        self._reader.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def is_comment(frame: bytes) -> bool:
    return all(line.startswith(b":") for line in frame.rstrip(b"\n").split(b"\n"))


def decode(frame: bytes) -> dict[str, Any]:
    """The JSON of a frame: exactly one `event:` line, then one `data:` line, then a blank line."""
    lines = frame.split(b"\n")
    assert len(lines) == 4, frame
    assert lines[2:] == [b"", b""], frame
    assert b"\r" not in frame, frame
    name, data = lines[0].decode(), lines[1].decode()
    assert name.startswith("event: "), frame
    assert data.startswith("data: "), frame
    event: dict[str, Any] = json.loads(data.removeprefix("data: "))
    assert event["type"] == name.removeprefix("event: "), frame
    return event


def plain_headers(api_key: str, extra: Mapping[str, str] | None = None) -> Headers:
    """What an ordinary client sends: key, beta version, JSON."""
    headers = {
        "Authorization": f"Bearer {api_key}",
        "OpenAI-Beta": "agents=v1",
        "Content-Type": "application/json",
    }
    return list({**headers, **(extra or {})}.items())
