"""What the first bytes of an image tell: its media type and its size."""

from __future__ import annotations

Size = tuple[int, int]

_SIZED_FRAMES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
_BRANDS = {
    **dict.fromkeys((b"heic", b"heix", b"heim", b"heis", b"hevc"), "image/heic"),
    **dict.fromkeys((b"mif1", b"msf1", b"heif"), "image/heif"),
    **dict.fromkeys((b"avif", b"avis"), "image/avif"),
}
_OTHERS = (
    (b"BM", "image/bmp"),
    (b"II*\x00", "image/tiff"),
    (b"MM\x00*", "image/tiff"),
    (b"\x00\x00\x01\x00", "image/x-icon"),
    (b"%PDF-", "application/pdf"),
)


def kind_and_size(head: bytes) -> tuple[str | None, Size | None]:
    """Media type and pixels (width, height) of an image, each None where its beginning does not tell.

    Args:
        head: the first bytes, at best 64 KiB of them.
    """
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png", _big(head, 16, 20, 4)
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg", _jpeg(head)
    if head[:6] in (b"GIF87a", b"GIF89a"):
        return "image/gif", _little(head, 6, 8, 2)
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp", _webp(head)
    if head[4:8] == b"ftyp":
        return _BRANDS.get(head[8:12]), None
    if head.lstrip()[:5].lower() in (b"<svg ", b"<?xml"):
        return "image/svg+xml", None
    return next((kind for start, kind in _OTHERS if head.startswith(start)), None), None


def _big(head: bytes, width: int, height: int, length: int) -> Size | None:
    if len(head) < max(width, height) + length:
        return None
    first, second = head[width : width + length], head[height : height + length]
    return int.from_bytes(first, "big"), int.from_bytes(second, "big")


def _little(head: bytes, width: int, height: int, length: int) -> Size | None:
    if len(head) < max(width, height) + length:
        return None
    first, second = head[width : width + length], head[height : height + length]
    return int.from_bytes(first, "little"), int.from_bytes(second, "little")


def _jpeg(head: bytes) -> Size | None:
    at = 2
    while at + 9 <= len(head) and head[at] == 0xFF:
        marker = head[at + 1]
        if marker in _SIZED_FRAMES:
            return _big(head, at + 7, at + 5, 2)
        # A filling byte, a marker without content, or a segment that tells its length.
        alone = marker == 0xFF or marker == 0x01 or 0xD0 <= marker <= 0xD8
        at += (1 if marker == 0xFF else 2) if alone else 2 + int.from_bytes(head[at + 2 : at + 4], "big")
    return None


def _webp(head: bytes) -> Size | None:
    match head[12:16]:
        case b"VP8 ":
            size = _little(head, 26, 28, 2)
            return None if size is None else (size[0] & 0x3FFF, size[1] & 0x3FFF)
        case b"VP8L" if len(head) >= 25:
            bits = int.from_bytes(head[21:25], "little")
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X":
            size = _little(head, 24, 27, 3)
            return None if size is None else (size[0] + 1, size[1] + 1)
    return None
