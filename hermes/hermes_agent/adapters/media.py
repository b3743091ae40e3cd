"""Files of incoming messages: fetch them, and store them below the home.

The URL of a file is untrusted, so only public addresses are fetched, unless `security.allow_private_urls` is set.
Source: plugin contract §11.2, §11.3, §12.2.
"""

from __future__ import annotations

import asyncio
import mimetypes
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_agent.adapters.media_references import AUDIO_EXTENSIONS
from hermes_agent.adapters.proxies import resolve_proxy_url
from hermes_agent.config import hermes_home, load
from hermes_agent.config.home import place_in_home
from hermes_agent.core.errors import ConfigError
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.system.files import PRIVATE, write_atomic
from hermes_agent.system.safe_http import check_host, open_url

if TYPE_CHECKING:
    import httpx

__all__ = [
    "CachedMedia",
    "MAX_INBOUND_BYTES",
    "SUPPORTED_DOCUMENT_TYPES",
    "SUPPORTED_IMAGE_DOCUMENT_TYPES",
    "SUPPORTED_VIDEO_TYPES",
    "TEXT_INJECT_EXTENSIONS",
    "cache_audio_from_bytes",
    "cache_audio_from_url",
    "cache_document_from_bytes",
    "cache_image_from_bytes",
    "cache_image_from_url",
    "cache_media_bytes",
    "cache_video_from_bytes",
    "fetch_media",
    "get_audio_cache_dir",
    "get_document_cache_dir",
    "get_image_cache_dir",
    "get_video_cache_dir",
    "looks_like_image",
    "ssrf_redirect_guard",
    "validate_inbound_media_size",
]


MAX_INBOUND_BYTES = 128 * 1024 * 1024

SUPPORTED_DOCUMENT_TYPES = {
    ".pdf": "application/pdf",
    ".md": "text/markdown",
    ".txt": "text/plain",
    ".csv": "text/csv",
    ".tsv": "text/tab-separated-values",
    ".log": "text/plain",
    ".json": "application/json",
    ".jsonl": "application/x-ndjson",
    ".xml": "application/xml",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
    ".toml": "application/toml",
    ".ini": "text/plain",
    ".html": "text/html",
    ".zip": "application/zip",
    ".epub": "application/epub+zip",
    ".rtf": "application/rtf",
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    ".odt": "application/vnd.oasis.opendocument.text",
    ".ods": "application/vnd.oasis.opendocument.spreadsheet",
}
"""MIME types of document files."""
SUPPORTED_VIDEO_TYPES = {
    ".mp4": "video/mp4",
    ".mov": "video/quicktime",
    ".webm": "video/webm",
    ".mkv": "video/x-matroska",
    ".avi": "video/x-msvideo",
    ".m4v": "video/x-m4v",
    ".3gp": "video/3gpp",
}
SUPPORTED_IMAGE_DOCUMENT_TYPES = {
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".png": "image/png",
    ".webp": "image/webp",
    ".gif": "image/gif",
}
TEXT_INJECT_EXTENSIONS = frozenset(
    {".txt", ".md", ".markdown", ".csv", ".tsv", ".log", ".json", ".jsonl", ".xml", ".yaml", ".yml", ".toml", ".ini"}
)
"""Files with text that may be included in the message."""

_MAGIC = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"BM", b"II*\0", b"MM\0*")
_HEIF_BRANDS = (b"heic", b"heix", b"hevc", b"mif1", b"msf1", b"avif", b"avis")


@lazy_dataclass(frozen=True)
class CachedMedia:
    """A stored file.

    Attributes:
        media_type: its MIME type.
        kind: `image`, `video`, `audio` or `document`.
        display_name: the name that the sender gave it.
    """

    path: str
    media_type: str
    kind: str
    display_name: str = ""

    def context_note(self) -> str:
        """Return a line about the file for the model."""
        return f"[{self.kind}: {self.display_name or Path(self.path).name}, saved at {self.path}]"


def get_image_cache_dir() -> Path:
    """Return the folder of images; create it if needed."""
    return _folder("images", "image_cache")


def get_audio_cache_dir() -> Path:
    """Return the folder of audio files; create it if needed."""
    return _folder("audio", "audio_cache")


def get_video_cache_dir() -> Path:
    """Return the folder of videos; create it if needed."""
    return _folder("videos", "video_cache")


def get_document_cache_dir() -> Path:
    """Return the folder of other files; create it if needed."""
    return _folder("documents", "document_cache")


def validate_inbound_media_size(size: int, *, media_type: str = "media", max_bytes: int | None = None) -> None:
    """Check the size of a file.

    Args:
        size: bytes.
        max_bytes: None: 128 MiB.

    Raises:
        ValueError: the file is too large.
    """
    limit = MAX_INBOUND_BYTES if max_bytes is None else max_bytes
    if size > limit:
        raise ValueError(f"the {media_type} has {size} bytes, above the limit of {limit}")


def cache_image_from_bytes(data: bytes, ext: str = ".jpg") -> str:
    """Store an image and return its path.

    Raises:
        ValueError: it is no image (such as an error page), or too large.
    """
    if not looks_like_image(data):
        raise ValueError(f"not an image: it begins with {data[:16]!r}")
    return _keep(get_image_cache_dir(), data, "img", ext, "image")


def cache_audio_from_bytes(data: bytes, ext: str = ".ogg") -> str:
    """Store an audio file and return its path; raise ValueError if it is too large."""
    return _keep(get_audio_cache_dir(), data, "audio", ext, "audio")


def cache_video_from_bytes(data: bytes, ext: str = ".mp4") -> str:
    """Store a video and return its path; raise ValueError if it is too large."""
    return _keep(get_video_cache_dir(), data, "video", ext, "video")


def cache_document_from_bytes(data: bytes, filename: str) -> str:
    """Store a file under its own name with a prefix, and return its path.

    Raises:
        ValueError: it is too large.
    """
    validate_inbound_media_size(len(data), media_type="document")
    path = get_document_cache_dir() / f"doc_{os.urandom(6).hex()}_{_safe_name(filename)}"
    write_atomic(path, data, mode=PRIVATE)
    return str(path)


def cache_media_bytes(
    data: bytes, *, filename: str = "", mime_type: str = "", default_kind: str | None = None
) -> CachedMedia | None:
    """Store a file in the folder of its kind; return None if it is empty.

    Args:
        default_kind: `image`, `video`, `audio` or `document`, if neither MIME type nor name determine the kind.

    Raises:
        ValueError: it is too large.
    """
    if not data:
        return None
    end = Path(filename).suffix.lower()
    said = mime_type.partition(";")[0].strip().lower()
    mime = _mime_of(end) if said in ("", "application/octet-stream") else said
    kind = _kind_of(mime, end) or (default_kind or "document")
    name = _safe_name(filename) if filename else ""
    if kind == "image" and looks_like_image(data):
        found = end or mimetypes.guess_extension(mime) or ".jpg"
        return CachedMedia(cache_image_from_bytes(data, found), mime or _mime_of(found), kind, name)
    if kind == "audio":
        found = end or mimetypes.guess_extension(mime) or ".ogg"
        return CachedMedia(cache_audio_from_bytes(data, found), mime or _mime_of(found), kind, name)
    if kind == "video":
        found = end or mimetypes.guess_extension(mime) or ".mp4"
        return CachedMedia(cache_video_from_bytes(data, found), mime or _mime_of(found), kind, name)
    path = cache_document_from_bytes(data, filename or f"file{mimetypes.guess_extension(mime) or '.bin'}")
    return CachedMedia(path, mime or "application/octet-stream", "document", name or Path(path).name)


def looks_like_image(data: bytes) -> bool:
    """Return whether the bytes begin like an image."""
    if data.startswith(_MAGIC) or (data[:4] == b"RIFF" and data[8:12] == b"WEBP"):
        return True
    return data[4:8] == b"ftyp" and data[8:12] in _HEIF_BRANDS


def _keep(folder: Path, data: bytes, prefix: str, ext: str, what: str) -> str:
    validate_inbound_media_size(len(data), media_type=what)
    end = re.sub(r"[^A-Za-z0-9]", "", ext)[:10] or "bin"
    path = folder / f"{prefix}_{os.urandom(8).hex()}.{end.lower()}"
    write_atomic(path, data, mode=PRIVATE)
    return str(path)


def _folder(name: str, older: str) -> Path:
    """Return the folder, created if needed."""
    place = place_in_home(f"cache/{name}", older)
    place.mkdir(parents=True, exist_ok=True)
    return place


def _safe_name(filename: str) -> str:
    """Return a name that is valid in a file system and does not lead out of a folder."""
    bare = filename.replace("\\", "/").rpartition("/")[2]
    clean = re.sub(r"[\x00-\x1f\x7f<>:\"|?*]", "_", bare).strip(". ")
    stem, dot, end = clean.rpartition(".")
    short = f"{stem[:80]}{dot}{end[:10]}" if stem else clean[:80]
    return short or "file"


def _mime_of(end: str) -> str:
    known = {**SUPPORTED_DOCUMENT_TYPES, **SUPPORTED_VIDEO_TYPES, **SUPPORTED_IMAGE_DOCUMENT_TYPES}
    return known.get(end) or mimetypes.guess_type(f"x{end}")[0] or ""


def _kind_of(mime: str, end: str) -> str:
    family = mime.partition("/")[0]
    if family in ("image", "audio", "video"):
        return "document" if mime == "image/svg+xml" else family
    if end in SUPPORTED_VIDEO_TYPES:
        return "video"
    if end in AUDIO_EXTENSIONS:
        return "audio"
    return "document" if mime or end in SUPPORTED_DOCUMENT_TYPES else ""


RETRY_PAUSE_S = 0.3
"""Delay before the second attempt; a multiple of it before each later attempt."""


async def cache_image_from_url(url: str, ext: str = ".jpg", retries: int = 2) -> str:
    """Fetch and store an image, and return its path.

    Args:
        retries: additional attempts after a failure of the network or the server.

    Raises:
        ValueError: the address is not allowed, or the file is no image or too large.
        httpx.HTTPError: the request failed.
    """
    return cache_image_from_bytes(await fetch_media(url, retries, what="image"), ext)


async def cache_audio_from_url(url: str, ext: str = ".ogg", retries: int = 2) -> str:
    """Fetch and store an audio file, and return its path; errors as in `cache_image_from_url`."""
    return cache_audio_from_bytes(await fetch_media(url, retries, what="audio"), ext)


async def ssrf_redirect_guard(response: httpx.Response) -> None:
    """Reject redirects to non-public addresses; an event hook (`response`) for `httpx.AsyncClient`.

    Raises:
        ValueError: the target is not public.
    """
    if response.is_redirect and response.next_request is not None:
        await check_host(str(response.next_request.url), private=_private_is_allowed())


async def fetch_media(url: str, retries: int = 2, *, what: str = "*", max_bytes: int = MAX_INBOUND_BYTES) -> bytes:
    """Fetch a file and return its bytes; errors as in `cache_image_from_url`.

    Args:
        what: first half of the accepted MIME type.
    """
    import httpx  # 60 ms, and most processes fetch no file

    for attempt in range(retries + 1):
        try:
            return await _fetch(url, what, max_bytes)
        except httpx.HTTPStatusError as exc:
            if attempt == retries or (exc.response.status_code < 500 and exc.response.status_code != 429):
                raise
        except httpx.TransportError:
            if attempt == retries:
                raise
        await asyncio.sleep(RETRY_PAUSE_S * (attempt + 1))
    raise ValueError(f"retries is {retries}: expected 0 or more")


async def _fetch(url: str, what: str, max_bytes: int) -> bytes:
    async with open_url(
        url,
        private=_private_is_allowed(),
        accept=f"{what}/*, */*;q=0.5",
        proxy_for=lambda host: resolve_proxy_url(target_hosts=[host]),
    ) as (_, response):
        response.raise_for_status()
        data = bytearray()
        async for piece in response.aiter_bytes():
            data += piece
            validate_inbound_media_size(len(data), media_type=what, max_bytes=max_bytes)
        return bytes(data)


def _private_is_allowed() -> bool:
    try:
        return load(hermes_home()).settings.security.allow_private_urls
    except ConfigError:  # with a broken config, nothing is allowed
        return False
