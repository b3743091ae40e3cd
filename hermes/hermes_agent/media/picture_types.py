"""What kind of picture some bytes are."""

__all__ = ["image_type"]

_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"BM", "image/bmp"),
)


def image_type(raw: bytes) -> str | None:
    """Return the content type of a picture by its first bytes, None when it is none that is known."""
    for magic, kind in _IMAGES:
        if raw.startswith(magic):
            return kind
    if raw[:4] == b"RIFF" and raw[8:12] == b"WEBP":
        return "image/webp"
    if raw[4:8] == b"ftyp" and raw[8:12] in (b"heic", b"heix", b"mif1", b"avif"):
        return "image/avif" if raw[8:12] == b"avif" else "image/heic"
    return None
