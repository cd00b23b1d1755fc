from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.models import sse
from perdure.models.sse import FrameSplitter, FrameTooLarge


def split(*chunks: bytes) -> list[bytes]:
    splitter = FrameSplitter()
    return [payload for chunk in chunks for payload in splitter.feed(chunk)] + splitter.flush()


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
def test_every_line_ending_is_read(newline: bytes) -> None:
    stream = b"data: one\n\nevent: x\ndata: two\n\n".replace(b"\n", newline)
    assert split(stream) == [b"one", b"two"]


@pytest.mark.parametrize(
    ("stream", "payloads"),
    [
        (b"data:no space\n\n", [b"no space"]),
        (b"data:  two spaces\n\n", [b" two spaces"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"data: a\nevent: late\n\n", [b"a"]),
        (b"id: 1\nevent: x\nretry: 5\ndata: a\n\n", [b"a"]),
        (b": comment\n\ndata: a\n\n: another\n\n", [b"a"]),
        (b": comment\ndata: a\n\n", [b"a"]),
        (b"event: ping\n\n", []),
        (b"data: a\n\n\n\n\ndata: b\n\n", [b"a", b"b"]),
        (b"\n\ndata: a\n\n", [b"a"]),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b"data:\n\n", [b""]),
        (b"database: a\n\n", []),
        (b"data: a\n\ndata: unfinished", [b"a", b"unfinished"]),
        (b"", []),
    ],
)
def test_frames_of_every_form(stream: bytes, payloads: list[bytes]) -> None:
    assert split(stream) == payloads
    assert split(*(bytes([byte]) for byte in stream)) == payloads


@given(
    st.lists(st.text(max_size=20), max_size=8),
    st.sampled_from([b"\n", b"\r\n"]),
    st.lists(st.integers(1, 30), max_size=40),
)
def test_chunks_may_be_cut_anywhere(texts: list[str], newline: bytes, sizes: list[int]) -> None:
    payloads = [json.dumps(text, ensure_ascii=False).encode("utf-8", "replace") for text in texts]
    stream = b"".join(b"event: e\ndata: " + payload + b"\n\n" for payload in payloads)
    stream = stream.replace(b"\n", newline)
    chunks = []
    for size in sizes:
        chunks.append(stream[:size])
        stream = stream[size:]
    assert split(*chunks, stream) == payloads


def test_a_frame_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_FRAME", 100)
    splitter = FrameSplitter()
    splitter.feed(b"data: " + b"x" * 90)
    with pytest.raises(FrameTooLarge):
        splitter.feed(b"x" * 90)
