"""Server-sent events from raw bytes: only the `data` of each frame, many frames at once."""

from __future__ import annotations

BOM = b"\xef\xbb\xbf"
MAX_FRAME = 64 * 1024 * 1024


class FrameTooLarge(Exception):
    """A frame did not end within `MAX_FRAME` bytes."""


class FrameSplitter:
    """Cuts a byte stream into frames; `feed` takes chunks of any size, cut anywhere.

    Lines may end in LF, CRLF or CR. Comments, `event`, `id` and `retry` lines are dropped: every
    provider repeats the event's type inside its data.
    """

    __slots__ = ("_buffer", "_fresh", "_held")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._fresh = True
        self._held = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the data of every frame that `chunk` completes, in order."""
        if self._held or b"\r" in chunk:
            chunk = self._normalize(chunk)
        if self._fresh:
            chunk = self._skip_mark(chunk)
        buffer = self._buffer
        if buffer:
            start = len(buffer) - 1
            buffer += chunk
            end = buffer.rfind(b"\n\n", start)
            if end < 0:
                self._check_size()
                return []
            complete = bytes(buffer[:end])
            del buffer[: end + 2]
        else:
            end = chunk.rfind(b"\n\n")
            if end < 0:
                buffer += chunk
                self._check_size()
                return []
            complete = chunk[:end]
            buffer += chunk[end + 2 :]
        return _payloads(complete)

    def flush(self) -> list[bytes]:
        """Return the data of a last frame whose closing empty line never came."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return _payloads(rest)

    def _normalize(self, chunk: bytes) -> bytes:
        if self._held:
            chunk = b"\r" + chunk
        # A CR at the very end may be half of a CRLF: wait for the next byte.
        self._held = chunk.endswith(b"\r")
        if self._held:
            chunk = chunk[:-1]
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _skip_mark(self, chunk: bytes) -> bytes:
        head = bytes(self._buffer) + chunk
        if len(head) < len(BOM) and BOM.startswith(head):
            return chunk
        self._fresh = False
        self._buffer.clear()
        return head.removeprefix(BOM)

    def _check_size(self) -> None:
        if len(self._buffer) > MAX_FRAME:
            raise FrameTooLarge


def _payloads(frames: bytes) -> list[bytes]:
    found = []
    for frame in frames.split(b"\n\n"):
        first = frame.find(b"\n") + 1
        # The two usual forms: one data line, alone or after one other line.
        if first == 0 or (frame.find(b"\n", first) < 0 and not frame.startswith(b"data:")):
            if frame.startswith(b"data:", first):
                start = first + 5
                found.append(frame[start + 1 :] if frame.startswith(b" ", start) else frame[start:])
            continue
        lines = [line[5:].removeprefix(b" ") for line in frame.split(b"\n") if line.startswith(b"data:")]
        if lines:
            found.append(b"\n".join(lines))
    return found
