"""Lines of IRC: parsing, comparison of names, splitting. Sources: RFC 2812, IRCv3 message tags."""

import re
from typing import NamedTuple

LINE_BYTES = 512
"""Longest line with its line end, as other clients receive it with the sender's prefix."""
PREFIX_BYTES = 1 + 1 + 10 + 1 + 63 + 1
"""Length of `:!user@host ` without the nick, until the server has sent the actual prefix."""
MANY = 40

_ESCAPES = {":": ";", "s": " ", "r": "\r", "n": "\n", "\\": "\\"}
_FORMATTING = re.compile(r"\x03(?:\d{1,2}(?:,\d{1,2})?)?|\x04(?:[0-9a-fA-F]{6})?|[\x00-\x08\x0b-\x1f\x7f]")
_FOLDED = str.maketrans("[]\\^", "{}|~")


class IrcLine(NamedTuple):
    """A line of the server."""

    tags: dict
    source: str
    command: str
    params: list

    @property
    def nick(self):
        """Nick of the sender."""
        return self.source.partition("!")[0]

    def param(self, at):
        """Return a parameter; "" if there are fewer."""
        return self.params[at] if -len(self.params) <= at < len(self.params) else ""


def parse(text):
    """Return a line; the command is "" if it has none."""
    tags, source = {}, ""
    if text.startswith("@"):
        packed, _, text = text[1:].partition(" ")
        for item in packed.split(";"):
            key, _, value = item.partition("=")
            tags[key] = re.sub(r"\\(.?)", lambda m: _ESCAPES.get(m[1], m[1]), value)
        text = text.lstrip(" ")
    if text.startswith(":"):
        source, _, text = text[1:].partition(" ")
    text, colon, trailing = text.lstrip(" ").partition(" :")
    words = text.split()
    return IrcLine(tags, source, words[0].upper() if words else "", words[1:] + ([trailing] if colon else []))


def fold(name):
    """Return a nick or channel in the form for comparisons."""
    return name.lower().translate(_FOLDED)


def is_channel(target):
    return target[:1] in ("#", "&", "+", "!")


def strip_formatting(text):
    """Return a text without colours, bold and other control characters."""
    return _FORMATTING.sub("", text)


def cut(text, room):
    """Return the lines of `text`, each of at most `room` bytes, split between words where possible.

    Very many short lines are joined, because one line is sent per second.
    """
    lines = []
    for line in text.splitlines():
        rest = strip_formatting(line).replace("\t", "    ").rstrip()
        while rest:
            piece = rest.encode()[:room].decode(
                errors="ignore"
            )  # an incomplete character at the end goes into the next line
            if len(piece) < len(rest) and not rest[len(piece)].isspace():
                at = piece.rfind(" ")
                piece = piece[:at] if at > len(piece) // 2 else piece
            if piece.strip():
                lines.append(piece.rstrip())
            rest = rest[len(piece) :].lstrip()
    if len(lines) <= MANY:
        return lines
    packed = lines[:1]
    for line in lines[1:]:
        joined = f"{packed[-1]} ⏎ {line.strip()}"
        packed[-1:] = [joined] if len(joined.encode()) <= room else [packed[-1], line]
    return packed
