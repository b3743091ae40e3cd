"""Files and pictures that an answer names, taken out of its text. Source: plugin contract §8.2.2."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = [
    "AS_DOCUMENT",
    "AS_VOICE",
    "AUDIO_EXTENSIONS",
    "IMAGE_EXTENSIONS",
    "VIDEO_EXTENSIONS",
    "extract_images",
    "extract_local_files",
    "extract_media",
    "is_animation_url",
    "local_path",
    "blank_code",
    "blank_json_media",
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


def extract_media(text: str) -> tuple[list[tuple[str, bool]], str]:
    """Take the `MEDIA:<path>` tags out of a text.

    Returns:
        Path and "it is to be a voice message" of each, and the text without tags and `[[…]]` marks.
    """
    is_voice = AS_VOICE in text
    bare = text.replace(AS_VOICE, "").replace(AS_DOCUMENT, "")
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

    return found, _close_gaps(_MEDIA.sub(take, bare), text)


def extract_images(text: str) -> tuple[list[tuple[str, str]], str]:
    """Take the pictures of the web out of a text: `![alt](https://…)` and `<img src="https://…">`.

    Returns:
        Address and alternative text of each, and the text without them.
    """
    fences = [match.span() for match in _FENCE.finditer(text)]
    found: list[tuple[int, str, str]] = []

    def in_code(match: re.Match[str]) -> bool:
        return any(start <= match.start() < end for start, end in fences)

    spans: list[tuple[int, int]] = []
    for match in _MARKDOWN_IMAGE.finditer(text):
        if not in_code(match):
            found.append((match.start(), match[2], match[1]))
            spans.append(match.span())
    for match in _HTML_IMAGE.finditer(text):
        import html  # with its table of entities: where one is found

        given = {m[1].lower(): html.unescape(m[2] or m[3] or m[4] or "") for m in _ATTRIBUTE.finditer(match[0])}
        if not in_code(match) and given.get("src", "").startswith(("http://", "https://")):
            found.append((match.start(), given["src"], given.get("alt", "")))
            spans.append(match.span())
    return [(url, alt) for _, url, alt in sorted(found)], _close_gaps(_remove_spans(text, spans), text)


def extract_local_files(text: str) -> tuple[list[str], str]:
    """Take bare paths of files out of a text: those that are there, and of a kind that people are sent.

    Returns:
        The paths, and the text without them. What stands in code or in an address stays.
    """
    code = [match.span() for match in _CODE.finditer(text)]
    found: list[str] = []
    spans: list[tuple[int, int]] = []
    for match in _BARE_PATH.finditer(text):
        path = Path(match[1]).expanduser()
        if any(start <= match.start() < end for start, end in code):
            continue
        if path.suffix.lower() in _DELIVERABLE and path.is_file():
            spans.append(match.span())
            if str(path) not in found:
                found.append(str(path))
    return found, _close_gaps(_remove_spans(text, spans), text)


def is_animation_url(url: str) -> bool:
    """Say whether an address is a moving picture's."""
    return urlsplit(url).path.lower().endswith(".gif")


def local_path(url: str) -> str | None:
    """Return the path of a `file://` address; None for any other."""
    return unquote(urlsplit(url).path) if url.startswith("file://") else None


def blank_code(text: str) -> str:
    """Return a text of the same length in which code and quotes are blank: tags in them are none."""
    return _QUOTED.sub(_blank, _CODE.sub(_blank, text))


def blank_json_media(text: str) -> str:
    """Return a text of the same length in which strings of JSON that hold a tag are blank."""
    return _JSON_TAG.sub(_blank, text)


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def _remove_spans(text: str, spans: list[tuple[int, int]]) -> str:
    for start, end in sorted(spans, reverse=True):
        text = text[:start] + text[end:]
    return text


def _close_gaps(text: str, before: str) -> str:
    """Close the gaps that were left; a text that nothing was taken from stays as it is."""
    if text == before:
        return text
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)).strip()
