"""What providers of pictures and of films answer, and their work as files below the home.

`image_gen` and `video_gen` have these functions under their contract's names.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hermes_agent.config import hermes_home
from hermes_agent.io.files import PRIVATE, write_atomic

__all__ = ["error_result", "save_base64", "save_bytes", "save_url"]

_EXTENSIONS = {
    "images": {"image/png": "png", "image/jpeg": "jpg", "image/webp": "webp", "image/gif": "gif"},
    "videos": {"video/mp4": "mp4", "video/webm": "webm", "video/quicktime": "mov"},
}
"""By folder and content type; the first is taken where neither type nor address tells."""
_UNFIT = re.compile(r"[^A-Za-z0-9-]+")


def error_result(
    what: str,
    *,
    error: str,
    error_type: str = "provider_error",
    provider: str = "",
    model: str = "",
    prompt: str = "",
    aspect_ratio: str = "",
) -> dict[str, Any]:
    """Return the answer of a provider that made nothing. `what`: the key that its work would have had."""
    return {
        "success": False,
        what: None,
        "error": error,
        "error_type": error_type,
        "model": model,
        "prompt": prompt,
        "aspect_ratio": aspect_ratio,
        "provider": provider,
    }


def save_bytes(folder: str, raw: bytes, *, prefix: str, extension: str) -> Path:
    """Write `raw` into a new file in `HOME/cache/<folder>`, readable by its owner alone, and return its path.

    Raises:
        ValueError: there is no data.
    """
    if not raw:
        raise ValueError("there is nothing to save: no data")
    place = hermes_home() / "cache" / folder
    place.mkdir(parents=True, exist_ok=True)
    stamp = time.strftime("%Y%m%d_%H%M%S")
    name = f"{_safe_name_part(prefix) or 'file'}_{stamp}_{os.urandom(4).hex()}.{_safe_name_part(extension) or 'bin'}"
    write_atomic(place / name, raw, mode=PRIVATE)
    return place / name


def save_base64(folder: str, b64_data: str, *, prefix: str, extension: str) -> Path:
    """Write what `b64_data` encodes, with or without `data:…;base64,` before it.

    Raises:
        ValueError: it is not base64, or empty.
    """
    body = b64_data.partition(",")[2] if b64_data.startswith("data:") else b64_data
    try:
        data = base64.b64decode("".join(body.split()), validate=True)
    except binascii.Error as exc:
        raise ValueError(f"this is not base64: {exc}") from exc
    return save_bytes(folder, data, prefix=prefix, extension=extension)


def save_url(folder: str, url: str, *, prefix: str, timeout: float, max_bytes: int) -> Path:
    """Fetch `url` and write it. `timeout`: seconds for the whole of it.

    Raises:
        ValueError: it is no HTTP address, or there is more than `max_bytes`.
        TimeoutError: it took longer.
        httpx.HTTPError: it cannot be fetched.
    """
    import httpx  # 60 ms, and most processes fetch nothing

    if urlsplit(url).scheme not in ("http", "https"):
        raise ValueError(f"cannot fetch {url[:120]!r}: expected http:// or https://")
    end = time.monotonic() + timeout
    with httpx.stream("GET", url, timeout=timeout, follow_redirects=True) as response:
        response.raise_for_status()
        data = _read(response.iter_bytes(), url, end, max_bytes)
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    extensions = _EXTENSIONS[folder]
    suffix = urlsplit(url).path.rpartition("/")[2].rpartition(".")[2].lower()
    known = suffix if suffix in extensions.values() else next(iter(extensions.values()))
    return save_bytes(folder, data, prefix=prefix, extension=extensions.get(kind, known))


def _read(pieces: Iterable[bytes], url: str, end: float, max_bytes: int) -> bytes:
    data = bytearray()
    for piece in pieces:
        data += piece
        if len(data) > max_bytes:
            raise ValueError(f"{url[:120]} has more than {max_bytes} bytes")
        if time.monotonic() > end:
            raise TimeoutError(f"{url[:120]} was not fetched in time: {len(data)} bytes so far")
    return bytes(data)


def _safe_name_part(text: str) -> str:
    """Return `text` with nothing in it that could lead out of a folder."""
    return _UNFIT.sub("_", text).strip("_")[:80]
