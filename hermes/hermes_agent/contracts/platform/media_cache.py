"""Files that came with a message, kept below the home. Source: plugin contract §11.2, §11.3, §12.2."""

from __future__ import annotations

import mimetypes
import os
import re
from dataclasses import dataclass
from pathlib import Path

from hermes_agent.config.home import place_in_home
from hermes_agent.contracts.platform.media_tags import AUDIO_EXTENSIONS
from hermes_agent.io.files import PRIVATE, write_atomic

__all__ = [
    "MAX_INBOUND_BYTES",
    "SUPPORTED_DOCUMENT_TYPES",
    "SUPPORTED_IMAGE_DOCUMENT_TYPES",
    "SUPPORTED_VIDEO_TYPES",
    "TEXT_INJECT_EXTENSIONS",
    "CachedMedia",
    "cache_audio_from_bytes",
    "cache_document_from_bytes",
    "cache_image_from_bytes",
    "cache_media_bytes",
    "cache_video_from_bytes",
    "get_audio_cache_dir",
    "get_document_cache_dir",
    "get_image_cache_dir",
    "get_video_cache_dir",
    "looks_like_image",
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
"""MIME type of the files that people send to be read."""
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
"""Files whose text may be put into the message."""

_MAGIC = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"BM", b"II*\0", b"MM\0*")
_HEIF_BRANDS = (b"heic", b"heix", b"hevc", b"mif1", b"msf1", b"avif", b"avis")


@dataclass(frozen=True)
class CachedMedia:
    """A file that was kept.

    Attributes:
        media_type: its MIME type.
        kind: `image`, `video`, `audio` or `document`.
        display_name: what the sender called it.
    """

    path: str
    media_type: str
    kind: str
    display_name: str = ""

    def context_note(self) -> str:
        """Return a line about it for the model."""
        return f"[{self.kind}: {self.display_name or Path(self.path).name}, saved at {self.path}]"


def get_image_cache_dir() -> Path:
    """Return the folder of pictures; it is made."""
    return _folder("images", "image_cache")


def get_audio_cache_dir() -> Path:
    """Return the folder of recordings; it is made."""
    return _folder("audio", "audio_cache")


def get_video_cache_dir() -> Path:
    """Return the folder of films; it is made."""
    return _folder("videos", "video_cache")


def get_document_cache_dir() -> Path:
    """Return the folder of other files; it is made."""
    return _folder("documents", "document_cache")


def validate_inbound_media_size(size: int, *, media_type: str = "media", max_bytes: int | None = None) -> None:
    """Refuse what is too large.

    Args:
        size: bytes.
        max_bytes: None means 128 MiB.

    Raises:
        ValueError: it has more bytes.
    """
    limit = MAX_INBOUND_BYTES if max_bytes is None else max_bytes
    if size > limit:
        raise ValueError(f"the {media_type} has {size} bytes, more than the {limit} that are taken")


def cache_image_from_bytes(data: bytes, ext: str = ".jpg") -> str:
    """Keep a picture and return its path.

    Raises:
        ValueError: it is none (an error page, say), or too large.
    """
    if not looks_like_image(data):
        raise ValueError(f"this is no picture: it begins with {data[:16]!r}")
    return _keep(get_image_cache_dir(), data, "img", ext, "image")


def cache_audio_from_bytes(data: bytes, ext: str = ".ogg") -> str:
    """Keep a recording and return its path; raises ValueError when it is too large."""
    return _keep(get_audio_cache_dir(), data, "audio", ext, "audio")


def cache_video_from_bytes(data: bytes, ext: str = ".mp4") -> str:
    """Keep a film and return its path; raises ValueError when it is too large."""
    return _keep(get_video_cache_dir(), data, "video", ext, "video")


def cache_document_from_bytes(data: bytes, filename: str) -> str:
    """Keep a file under its own name, with something before it, and return its path.

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
    """Keep whatever came, in the folder of its kind; None when there is nothing.

    Args:
        default_kind: `image`, `video`, `audio` or `document`, for what neither type nor name tells.

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
    """Say whether bytes begin as a picture does."""
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
    """Return the folder, made."""
    place = place_in_home(f"cache/{name}", older)
    place.mkdir(parents=True, exist_ok=True)
    return place


def _safe_name(filename: str) -> str:
    """Return a name that leads out of no folder, and that a file system takes."""
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
