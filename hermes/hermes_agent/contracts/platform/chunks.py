"""Cut a text into messages that a platform takes. Source: plugin contract §8.2.2 (`truncate_message`), §11.2."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["prefix_within", "prefix_within_utf16_limit", "split_message", "utf16_len"]

Length = Callable[[str], int]

SUFFIX_ROOM = len(" (999/999)")
CLOSING = "\n```"
LONGEST_LANGUAGE = 20
"""A longer word behind the fence is no language: it is not written again."""
SMALLEST = 64
"""Below this many characters a message has no room for marks; the text is cut as it is."""


def utf16_len(s: str) -> int:
    """Return the length in UTF-16 units, as some platforms count."""
    return len(s.encode("utf-16-le", "surrogatepass")) // 2


def prefix_within(s: str, limit: int, length: Length) -> str:
    """Return the longest beginning of `s` that is no longer than `limit`, as `length` measures."""
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
    """Return the longest beginning of `s` of at most `limit` UTF-16 units; no character is cut in two."""
    return prefix_within(s, limit, utf16_len)


def split_message(content: str, max_length: int = 4096, len_fn: Length | None = None) -> list[str]:
    """Return `content` in parts of at most `max_length`, each but an only one with ` (i/n)` at its end.

    A code block that is cut is closed and opened again, with its language; a cut is made at the end of a line or
    between words, and not within inline code, where that is possible.

    Args:
        len_fn: how the platform measures; None means characters. No character may measure zero.
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
    """Return the beginning of `text` that goes into one message."""
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
    """Return the language of the code block that `text` leaves open; None when it leaves none open."""
    language: str | None = None
    for line in text.splitlines():
        bare = line.strip()
        if bare.startswith("```"):
            words = bare[3:].split()
            named = words[0] if words and len(words[0]) <= LONGEST_LANGUAGE else ""
            language = named if language is None else None
    return language
