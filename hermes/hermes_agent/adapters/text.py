"""Texts of messages and errors: splitting, removing Markdown, mentions, kinds of failures.

Source: plugin contract §8.2, §8.2.2 (`truncate_message`), §11.2, §11.3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

__all__ = [
    "ERROR_KINDS",
    "TABLE_SEPARATOR_RE",
    "as_command",
    "classify_send_error",
    "convert_table_to_bullets",
    "is_retryable_error",
    "is_timeout_error",
    "prefix_within",
    "prefix_within_utf16_limit",
    "redact_phone",
    "split_message",
    "strip_markdown",
    "strip_mention",
    "utf16_len",
]


Length = Callable[[str], int]

SUFFIX_ROOM = len(" (999/999)")
CLOSING = "\n```"
LONGEST_LANGUAGE = 20
"""A longer word after the fence is no language and is not repeated."""
SMALLEST = 64
"""Limit in characters below which a message has no room for marks, and the text is cut without them."""


def utf16_len(s: str) -> int:
    """Return the length in UTF-16 units, as some platforms count."""
    return len(s.encode("utf-16-le", "surrogatepass")) // 2


def prefix_within(s: str, limit: int, length: Length) -> str:
    """Return the longest prefix of `s` within `limit`, measured by `length`."""
    if length(s) <= limit:
        return s
    low, high = 0, min(len(s), max(limit, 0))
    while low < high:
        middle = (low + high + 1) // 2
        if length(s[:middle]) <= limit:
            low = middle
        else:
            high = middle - 1
    return s[:low]


def prefix_within_utf16_limit(s: str, limit: int) -> str:
    """Return the longest prefix of `s` of at most `limit` UTF-16 units, without a divided character."""
    return prefix_within(s, limit, utf16_len)


def split_message(content: str, max_length: int = 4096, len_fn: Length | None = None) -> list[str]:
    """Return `content` in parts of at most `max_length`, several of them with ` (i/n)` at the end.

    A divided code block is closed and opened again with its language. Text is cut at the end of a line or between
    words, and not within inline code, where possible.

    Args:
        len_fn: measures a text; None: the number of characters. No character may measure 0.
    """
    length = len_fn or len
    if length(content) <= max_length:
        return [content]
    if max_length < SMALLEST:
        return _split_plain(content, max_length, length)
    parts: list[str] = []
    rest, language = content, None
    while rest:
        opening = "" if language is None else f"```{language}\n"
        if length(opening + rest) + SUFFIX_ROOM <= max_length:
            parts.append(opening + rest)
            break
        room = max_length - SUFFIX_ROOM - length(opening) - length(CLOSING)
        piece = _first_part(rest, max(room, 1), length)
        rest = rest[len(piece) :]
        if rest[:1] in ("\n", " ") and piece[-1:] != "\n":
            rest = rest[1:]
        language = _open_fence(opening + piece)
        parts.append(opening + piece.rstrip("\n") + (CLOSING if language is not None else ""))
    return [f"{part} ({number}/{len(parts)})" for number, part in enumerate(parts, 1)] if len(parts) > 1 else parts


def _split_plain(content: str, max_length: int, length: Length) -> list[str]:
    parts, rest = [], content
    while rest:
        piece = prefix_within(rest, max_length, length) or rest[:1]
        parts.append(piece)
        rest = rest[len(piece) :]
    return parts


def _first_part(text: str, room: int, length: Length) -> str:
    """Return the prefix of `text` that fits into a message."""
    piece = prefix_within(text, room, length) or text[:1]
    if len(piece) == len(text):
        return piece
    for mark in ("\n", " "):
        at = piece.rfind(mark)
        if at > len(piece) // 2:
            piece = piece[:at]
            break
    line = piece.rpartition("\n")[2]
    opens = piece.rfind("`")
    if line.count("`") % 2 and not line.lstrip().startswith("```") and opens > len(piece) // 4:
        piece = piece[:opens]
    return piece


def _open_fence(text: str) -> str | None:
    """Return the language of the code block that `text` leaves open, or None if there is none."""
    language: str | None = None
    for line in text.splitlines():
        bare = line.strip()
        if bare.startswith("```"):
            words = bare[3:].split()
            named = words[0] if words and len(words[0]) <= LONGEST_LANGUAGE else ""
            language = named if language is None else None
    return language


TABLE_SEPARATOR_RE = re.compile(r"^\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*){1,}\|?\s*$")
"""Upstream's pattern of the line below the head of a table."""


def strip_markdown(text: str) -> str:
    """Return the text without Markdown marks; links keep their URLs, code keeps its lines."""
    from hermes_agent.adapters.markdown import PLAIN, render  # slow import, needed for some messages only

    return render(text, PLAIN).strip()


def convert_table_to_bullets(text: str) -> str:
    """Return the text with Markdown tables as lists: a bullet for each row, with `column: value` in it.

    Tables in code blocks stay.
    """
    if "|" not in text:
        return text
    from hermes_agent.adapters.markdown import bullet_lists  # as above

    return bullet_lists(text)


def redact_phone(phone: str) -> str:
    """Return a phone number of which only the ends are visible: `+4915****4567`."""
    if not phone:
        return "<none>"
    if len(phone) <= 8:
        return f"{phone[:2]}****{phone[-2:]}" if len(phone) > 4 else "****"
    return f"{phone[:4]}****{phone[-4:]}"


def strip_mention(text: str, names: Iterable[str]) -> tuple[str, bool]:
    """Return a text without the agent's name in front, and whether it mentions the agent.

    Args:
        names: names of the agent, with and without `@`.
    """
    either = "|".join(sorted((re.escape(name) for name in names if name), key=len, reverse=True))
    if not either:
        return text.strip(), False
    front = re.match(rf"\s*@?(?:{either})(?:[:,]\s*|\s+)(?=\S)", text, re.IGNORECASE)
    if front:
        return text[front.end() :].strip(), True
    return text.strip(), re.search(rf"(?<![\w-])@?(?:{either})(?![\w-])", text, re.IGNORECASE) is not None


def as_command(text: str) -> str:
    """Return a text that begins with `!name` as the command `/name`, for clients that intercept slashes."""
    return f"/{text[1:]}" if re.match(r"![a-zA-Z]", text) else text


ERROR_KINDS = ("too_long", "bad_format", "forbidden", "not_found", "rate_limited", "transient", "unknown")

_SIGNS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("rate_limited", ("rate limit", "ratelimit", "too many requests", "flood control", "retry after", "429")),
    ("too_long", ("too long", "too large", "message_too_long", "exceeds", "entity too large", "413")),
    ("bad_format", ("can't parse", "cannot parse", "parse entities", "invalid format", "markdown", "malformed")),
    ("forbidden", ("forbidden", "unauthorized", "not allowed", "permission", "blocked by", "kicked", "401", "403")),
    ("not_found", ("not found", "unknown channel", "no such", "does not exist", "404")),
    ("transient", ("connect", "network", "timed out", "timeout", "unavailable", "reset by peer", "broken pipe")),
    ("transient", ("500", "502", "503", "504", "temporar")),
)
_NEVER_ARRIVED = ("connect", "network", "unreachable", "refused", "reset by peer", "broken pipe", "dns", "resolve")
_MAYBE_ARRIVED = ("timed out", "timeout", "may have arrived")


def classify_send_error(exc: BaseException | None, error_text: str = "") -> str:
    """Return the kind of a failure, one of `ERROR_KINDS`, by its class and text."""
    if isinstance(exc, (ConnectionError, TimeoutError)):
        return "transient"
    if isinstance(exc, PermissionError):
        return "forbidden"
    name = type(exc).__name__ if exc is not None else ""
    text = f"{name} {exc if exc is not None else ''} {error_text}".lower()
    return next((kind for kind, signs in _SIGNS if any(_has(text, sign) for sign in signs)), "unknown")


def _has(text: str, sign: str) -> bool:
    """Return whether `sign` occurs in `text`; a number must not be part of a longer one."""
    return bool(re.search(rf"(?<!\d){sign}(?!\d)", text)) if sign.isdigit() else sign in text


def is_retryable_error(error: str | None) -> bool:
    """Return whether a failure is one of the network, before the message can have arrived."""
    text = (error or "").lower()
    return any(sign in text for sign in _NEVER_ARRIVED)


def is_timeout_error(error: str | None) -> bool:
    """Return whether it is unknown if the message arrived, so that another attempt could duplicate it."""
    text = (error or "").lower()
    return any(sign in text for sign in _MAYBE_ARRIVED) and "connect" not in text
