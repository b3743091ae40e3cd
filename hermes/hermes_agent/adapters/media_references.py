"""Files and images that an answer refers to, and which files may be sent.

Secrets, config and database of the agent, and files of the system, are never sent. An answer may follow instructions
of untrusted text. Source: plugin contract §8.2.2, §12.4.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from hermes_agent.config import hermes_home
from hermes_agent.core.lazy_types import LazyNamedTuple

__all__ = [
    "AS_DOCUMENT",
    "AS_VOICE",
    "AUDIO_EXTENSIONS",
    "IMAGE_EXTENSIONS",
    "TextReferences",
    "VIDEO_EXTENSIONS",
    "blank_code",
    "blank_json_media",
    "extract_images",
    "extract_local_files",
    "extract_media",
    "extract_references",
    "file_method",
    "filter_local_delivery_paths",
    "filter_media_delivery_paths",
    "is_animation_url",
    "local_path",
    "validate_media_delivery_path",
]


AS_VOICE = "[[audio_as_voice]]"
AS_DOCUMENT = "[[as_document]]"

IMAGE_EXTENSIONS = frozenset({".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp"})
AUDIO_EXTENSIONS = frozenset({".mp3", ".wav", ".ogg", ".oga", ".opus", ".m4a", ".flac", ".aac"})
VIDEO_EXTENSIONS = frozenset({".mp4", ".mov", ".webm", ".mkv", ".avi", ".m4v", ".3gp"})
_FILES = frozenset(
    {".pdf", ".docx", ".xlsx", ".pptx", ".csv", ".zip", ".txt", ".md", ".json", ".html", ".svg", ".epub"}
)
_DELIVERABLE = IMAGE_EXTENSIONS | AUDIO_EXTENSIONS | VIDEO_EXTENSIONS | _FILES

_MEDIA = re.compile(r"""[`"']?MEDIA:[ \t]*(?:"([^"\n]+)"|'([^'\n]+)'|`([^`\n]+)`|([^\s`"']+))[`"']?""")
_MARKDOWN_IMAGE = re.compile(r"!\[([^\]\n]*)\]\(\s*<?(https?://[^)\s>]+)>?(?:\s+\"[^\"\n]*\")?\s*\)")
_HTML_IMAGE = re.compile(r"<img\b[^>]*?>(?:\s*</img>)?", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"""\b(src|alt)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>]+))""", re.IGNORECASE)
_BARE_PATH = re.compile(
    r"(?<![\w/.:~\"'`(\[=-])(~?/(?:[^\s`\"'<>|*?/]+/)*[^\s`\"'<>|*?/]+\.[A-Za-z0-9]{2,5})(?![\w/-])"
)
_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]+`", re.DOTALL)
_FENCE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_QUOTED = re.compile(r"^[ \t]*>.*$", re.MULTILINE)
_JSON_TAG = re.compile(r'(?<=[:,\[{ \t])"(?:[^"\\\n]|\\.)*MEDIA:(?:[^"\\\n]|\\.)*"')


def extract_media(content: str) -> tuple[list[tuple[str, bool]], str]:
    """Remove the `MEDIA:<path>` tags from a text.

    Returns:
        Path and "is a voice message" of each tag, and the text without tags and `[[…]]` marks.
    """
    is_voice = AS_VOICE in content
    bare = content.replace(AS_VOICE, "").replace(AS_DOCUMENT, "")
    fences = [match.span() for match in _FENCE.finditer(bare)]
    found: list[tuple[str, bool]] = []

    def take(match: re.Match[str]) -> str:
        if any(start <= match.start() < end for start, end in fences):
            return match[0]
        path = next(group for group in match.groups() if group)
        if match[4]:
            path = path.rstrip(".,;:!?)]}>")
        path = local_path(path) or path
        found.append((str(Path(path).expanduser()) if path.startswith("~/") else path, is_voice))
        return ""

    return found, _close_gaps(_MEDIA.sub(take, bare), content)


def extract_images(content: str) -> tuple[list[tuple[str, str]], str]:
    """Remove images on the web from a text: `![alt](https://…)` and `<img src="https://…">`.

    Returns:
        URL and alternative text of each image, and the remaining text.
    """
    fences = [match.span() for match in _FENCE.finditer(content)]
    found: list[tuple[int, str, str]] = []

    def in_code(match: re.Match[str]) -> bool:
        return any(start <= match.start() < end for start, end in fences)

    spans: list[tuple[int, int]] = []
    for match in _MARKDOWN_IMAGE.finditer(content):
        if not in_code(match):
            found.append((match.start(), match[2], match[1]))
            spans.append(match.span())
    for match in _HTML_IMAGE.finditer(content):
        import html  # slow import, needed only for such a tag

        given = {m[1].lower(): html.unescape(m[2] or m[3] or m[4] or "") for m in _ATTRIBUTE.finditer(match[0])}
        if not in_code(match) and given.get("src", "").startswith(("http://", "https://")):
            found.append((match.start(), given["src"], given.get("alt", "")))
            spans.append(match.span())
    return [(url, alt) for _, url, alt in sorted(found)], _close_gaps(_remove_spans(content, spans), content)


def extract_local_files(content: str) -> tuple[list[str], str]:
    """Remove bare paths of existing files of deliverable types from a text.

    Returns:
        The paths, and the remaining text. Paths in code and URLs stay.
    """
    code = [match.span() for match in _CODE.finditer(content)]
    found: list[str] = []
    spans: list[tuple[int, int]] = []
    for match in _BARE_PATH.finditer(content):
        path = Path(match[1]).expanduser()
        if any(start <= match.start() < end for start, end in code):
            continue
        if path.suffix.lower() in _DELIVERABLE and path.is_file():
            spans.append(match.span())
            if str(path) not in found:
                found.append(str(path))
    return found, _close_gaps(_remove_spans(content, spans), content)


class TextReferences(LazyNamedTuple):
    """A text without the files and images that it names, and these."""

    text: str
    media: list[tuple[str, bool]]
    """Paths of `MEDIA:` tags, with whether each is a voice message."""
    images: list[tuple[str, str]]
    """Addresses of images, with their alternative texts."""
    files: list[str]


def extract_references(text: str, adapter: Any) -> TextReferences:
    """Take files and images out of a text with an adapter's methods; a failing method leaves them in."""
    media, text = _extract(text, adapter, "extract_media", extract_media)
    images, text = _extract(text, adapter, "extract_images", extract_images)
    files, text = _extract(text, adapter, "extract_local_files", extract_local_files)
    return TextReferences(text, media, images, files)


def _extract(text: str, adapter: Any, method: str, default: Callable[[str], Any]) -> tuple[list[Any], str]:
    try:
        found, rest = getattr(adapter, method, default)(text)
        return list(found), str(rest)
    except Exception as exc:  # noqa: BLE001 - code of a plugin: the answer is sent in any case
        logger.warning("adapter: `%s` failed: %r", method, exc)
        return [], text


def is_animation_url(url: str) -> bool:
    """Return whether a URL is that of an animation."""
    return urlsplit(url).path.lower().endswith(".gif")


def local_path(url: str) -> str | None:
    """Return the path of a `file://` URL, or None."""
    return unquote(urlsplit(url).path) if url.startswith("file://") else None


def blank_code(text: str) -> str:
    """Return the text with code and quotes replaced by spaces; tags in them do not count."""
    return _QUOTED.sub(_blank, _CODE.sub(_blank, text))


def blank_json_media(text: str) -> str:
    """Return the text with JSON strings that contain a tag replaced by spaces."""
    return _JSON_TAG.sub(_blank, text)


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def _remove_spans(text: str, spans: list[tuple[int, int]]) -> str:
    for start, end in sorted(spans, reverse=True):
        text = text[:start] + text[end:]
    return text


def _close_gaps(text: str, before: str) -> str:
    """Remove the gaps of removed tags; a text without removed tags stays unchanged."""
    if text == before:
        return text
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)).strip()


logger = logging.getLogger(__name__)

RECENT_S = 600
"""With `HERMES_MEDIA_DELIVERY_STRICT`: seconds for which a new file may be sent."""

_SYSTEM = ("/etc", "/proc", "/sys", "/dev", "/boot", "/run", "/var/run", "/var/log", "/var/spool")
_PRIVATE_OF_USER = (
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".password-store",
    ".netrc",
    ".pgpass",
    ".npmrc",
    ".git-credentials",
    ".config/gcloud",
    ".config/gh",
    ".config/hub",
    ".local/share/keyrings",
    ".bash_history",
    ".zsh_history",
)
_OPEN_IN_HOME = (
    "cache",
    "workspace",
    "cron/output",
    "image_cache",
    "audio_cache",
    "video_cache",
    "document_cache",
    "browser_screenshots",
)
"""Folders of the home with files for users; other files of the home are not sent."""
_SECRET_NAMES = (".env", "auth.json", "credentials", "credentials.json", "id_rsa", "id_ed25519", "id_ecdsa", "id_dsa")
_SECRET_ENDS = (".pem", ".key", ".p12", ".pfx", ".keystore", ".jks", ".kdbx", ".ovpn")


def validate_media_delivery_path(path: str, session_key: str = "") -> str | None:
    """Return the real path of a file that may be sent; None if it is missing or must not be sent.

    Links are resolved first. `HERMES_MEDIA_DELIVERY_STRICT` allows only files in the caches, files in
    `HERMES_MEDIA_ALLOW_DIRS` (separated like `PATH`), and recently written files
    (`HERMES_MEDIA_TRUST_RECENT_FILES`, `HERMES_MEDIA_TRUST_RECENT_FILES_SECONDS`). The same holds in all sessions.
    """
    try:
        real = Path(path.removeprefix("file://")).expanduser().resolve(strict=True)
    except (OSError, RuntimeError, ValueError):
        return None
    if not real.is_file() or not os.access(real, os.R_OK) or _is_secret(real):
        return None
    allowed = _is_below(real, _allowed_roots())
    if allowed or not _is_on("HERMES_MEDIA_DELIVERY_STRICT", default=False):
        return str(real)
    return str(real) if _is_recent(real) else None


def filter_media_delivery_paths(media_files: Iterable[tuple[str, bool]]) -> list[tuple[str, bool]]:
    """Return the items of `(path, is voice)` that may be sent, with real paths."""
    checked = ((_checked(path), is_voice) for path, is_voice in media_files)
    return [(path, is_voice) for path, is_voice in checked if path is not None]


def filter_local_delivery_paths(file_paths: Iterable[str]) -> list[str]:
    """Return the real paths of the files that may be sent."""
    return [real for path in file_paths if (real := _checked(path)) is not None]


def _checked(path: str) -> str | None:
    real = validate_media_delivery_path(path)
    if real is None:
        logger.warning("file not sent: %s is missing or must not be sent", path)
    return real


def _allowed_roots() -> list[Path]:
    named = [Path(p).expanduser() for p in os.environ.get("HERMES_MEDIA_ALLOW_DIRS", "").split(os.pathsep) if p]
    home = hermes_home()
    return [_real(place) for place in (*(home / name for name in _OPEN_IN_HOME), *named)]


def _is_secret(real: Path) -> bool:
    name = real.name.lower()
    if name in _SECRET_NAMES or name.startswith(".env.") or name.endswith(_SECRET_ENDS):
        return True
    home = _real(hermes_home())
    if _is_below(real, [home]) and not _is_below(real, _allowed_roots()):
        return True
    own = [_real(Path.home() / name) for name in _PRIVATE_OF_USER]
    given = os.environ.get("CREDENTIALS_DIRECTORY")
    return _is_below(real, [*map(_real, map(Path, _SYSTEM)), *own, *([_real(Path(given))] if given else [])])


def _is_below(path: Path, roots: Iterable[Path]) -> bool:
    return any(path == root or root in path.parents for root in roots)


def _real(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        return path


def _is_recent(real: Path) -> bool:
    if not _is_on("HERMES_MEDIA_TRUST_RECENT_FILES", default=True):
        return False
    text = os.environ.get("HERMES_MEDIA_TRUST_RECENT_FILES_SECONDS", "")
    limit = int(text) if text.isdigit() else RECENT_S
    return time.time() - real.stat().st_mtime <= limit


def _is_on(variable: str, *, default: bool) -> bool:
    text = os.environ.get(variable, "").strip().lower()
    return text in ("1", "true", "yes", "on") if text else default


def file_method(path: str, *, as_document: bool) -> str:
    """Return the name of the adapter method that sends this kind of file."""
    end = Path(path).suffix.lower()
    kinds = (("send_voice", AUDIO_EXTENSIONS), ("send_video", VIDEO_EXTENSIONS), ("send_image_file", IMAGE_EXTENSIONS))
    return next((name for name, ends in kinds if end in ends and not as_document), "send_document")
