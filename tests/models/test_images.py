"""Images that a provider does not read never end a session: words stand in their place."""

from __future__ import annotations

import base64
import struct
from contextlib import suppress
from typing import Any

import pytest
from tests.models.wires import WIRES, Wire, ask, collect, fail, user
from tests.providers.answers import Refusal, Text, answer

from perdure.models.errors import ModelError
from perdure.models.image_header import kind_and_size
from perdure.models.images import ImageRules, Inline, Unshown, look_at
from perdure.models.messages import (
    AssistantMessage,
    Entry,
    FunctionCall,
    FunctionResult,
    ImagePart,
    TextPart,
    UserMessage,
)

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
JPEG = b"\xff\xd8\xff\xe0\x00\x04\x00\x00\xff\xff\xc0\x00\x11\x08"
RULES = ImageRules(("image/png", "image/jpeg"), most_bytes=1 << 20, most_pixels=8000)


def data_url(content: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def png(width: int, height: int, more: bytes = b"") -> bytes:
    return PNG + struct.pack(">II", width, height) + more


def shown(*urls: str) -> UserMessage:
    return UserMessage((TextPart("Look."), *map(ImagePart, urls)))


def text(body: dict[str, Any]) -> str:
    return str(body.get("input") or body.get("messages") or body.get("contents"))


@pytest.mark.parametrize(
    ("content", "kind", "size"),
    [
        (png(640, 480), "image/png", (640, 480)),
        (PNG, "image/png", None),
        (JPEG + struct.pack(">HH", 480, 640), "image/jpeg", (640, 480)),
        (JPEG, "image/jpeg", None),
        (b"GIF89a" + struct.pack("<HH", 3, 4), "image/gif", (3, 4)),
        (b"RIFF....WEBPVP8 ..........\x03\x00\x04\x00", "image/webp", (3, 4)),
        (b"RIFF....WEBPVP8X........\x02\x00\x00\x03\x00\x00", "image/webp", (3, 4)),
        (b"RIFF....WEBPVP8L\x00\x00\x00\x00\x2f\x02\xc0\x00\x00", "image/webp", (3, 4)),
        (b"\x00\x00\x00\x18ftypheic", "image/heic", None),
        (b"\x00\x00\x00\x18ftypavif", "image/avif", None),
        (b"BM....", "image/bmp", None),
        (b"  <svg xmlns", "image/svg+xml", None),
        (b"what is this", None, None),
        (b"", None, None),
    ],
)
def test_an_image_tells_what_it_is(content: bytes, kind: str | None, size: tuple[int, int] | None) -> None:
    assert kind_and_size(content) == (kind, size)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        (data_url(b"BM...."), "the model reads no image/bmp"),
        (data_url(b"?", "image/x-odd"), "the model reads no image/x-odd"),
        (data_url(png(8001, 1)), "it is 8001 by 1 pixels, more than 8000"),
        (data_url(png(1, 1, bytes(1 << 20))), "it has more than 1 MiB"),
        ("data:image/png;base64,%%%%", "its data is no base64"),
        ("data:image/png;base64,AAAAA", "its data is no base64"),
        ("data:image/png;base64,", "it is empty"),
        ("data:image/png,AAAA", "its data URL is not in base64"),
        ("file:///etc/passwd", "file:///etc/passwd is no http address"),
    ],
)
def test_what_cannot_be_shown_says_why(url: str, why: str) -> None:
    assert look_at(url, RULES) == Unshown(why)


def test_an_image_is_sent_as_what_it_is() -> None:
    found = look_at(data_url(JPEG, "image/png"), RULES)
    assert isinstance(found, Inline)
    assert found.kind == "image/jpeg"


UNREADABLE = {
    "not what it says": data_url(png(1, 1), "image/jpeg"),
    "of another type": data_url(b"BM....", "image/bmp"),
    "an icon that says it is PNG": data_url(b"\x00\x00\x01\x00..", "image/png"),
    "no address of a web page": "ftp://example.com/a.png",
}


@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
@pytest.mark.parametrize("url", UNREADABLE.values(), ids=UNREADABLE)
async def test_images_that_can_be_known_to_be_refused_are_not_sent(wire: Wire, url: str) -> None:
    async with wire.provider() as provider:
        model = wire.model(provider.settings())
        call = FunctionCall("call_1", "look", "{}")
        history = (shown(url), call, FunctionResult("call_1", (TextPart("See"), ImagePart(url))))
        await collect(model, ask(*history))
        await collect(model, ask(*history, AssistantMessage("Fine."), user("Go on.")))
        assert provider.violations == []
        await model.close()


REFUSED = {"broken": data_url(b"BROKEN"), "gone": "https://unreachable.example.com/a.png"}


@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
@pytest.mark.parametrize("url", REFUSED.values(), ids=REFUSED)
async def test_an_image_that_is_refused_is_told_in_words_from_then_on(wire: Wire, url: str) -> None:
    good = data_url(png(2, 2))
    async with wire.provider() as provider:
        model = wire.model(provider.settings())
        first: list[Entry] = [shown(good), AssistantMessage("I see.")]
        entries = (*first, shown(url))
        request = ask(*entries, cache_key="s", settled=2)
        for _ in range(expected(wire, url)):
            _, error = await fail(model, request)
            assert error.retryable
        provider.queue(answer(Text("ok")))
        await collect(model, request)
        body = text(provider.requests[-1].body)
        assert f"'{url}'" not in body
        assert "BROKEN" not in body
        assert good.partition(",")[2] in body
        seen = len(provider.violations)
        later = ask(*entries, AssistantMessage("Fine."), user("Go on."), cache_key="s", settled=4)
        await collect(model, later)
        assert len(provider.violations) == seen
        await model.close()


def expected(wire: Wire, url: str) -> int:
    """Refused requests: what Gemini fails to fetch is tried again once, because it often passes."""
    return 2 if wire.provider.PROTOCOL == "gemini" and not url.startswith("data:") else 1


@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
async def test_many_broken_images_take_few_requests(wire: Wire) -> None:
    """A session that already holds broken images repairs itself within the attempts of one step."""
    broken = [data_url(b"BROKEN" + bytes([number])) for number in range(12)]
    async with wire.provider() as provider:
        model = wire.model(provider.settings())
        entries = (shown(*broken[:6]), AssistantMessage("Hm."), shown(*broken[6:]))
        request = ask(*entries, cache_key="s", settled=2)
        refused = 0
        while provider.violations == [] or len(provider.violations) > refused:
            refused = len(provider.violations)
            with suppress(ModelError):
                await collect(model, request)
                break
        assert len(provider.violations) <= 3
        assert provider.requests[-1].served.is_set()
        await model.close()


@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
async def test_other_refusals_leave_images_alone(wire: Wire) -> None:
    async with wire.provider() as provider:
        model = wire.model(provider.settings())
        request = ask(shown(data_url(png(2, 2))))
        for refusal in (
            Refusal(400, message="The name of the model is not known."),
            Refusal(401, message="No image for you."),
            Refusal(400, code="context_length_exceeded", message="The prompt is too long: too many images."),
        ):
            provider.queue(refusal)
            _, error = await fail(model, request)
            assert not error.retryable
        await collect(model, request)
        assert "[image not shown" not in text(provider.requests[-1].body)
        await model.close()
