"""The lines of IRC: read, compared, cut. Sources: RFC 2812, IRCv3 message tags."""

import re
from typing import NamedTuple

LINE_BYTES = 512
"""Longest line with its ending, as others see it: with our prefix in front."""
PREFIX_BYTES = 1 + 1 + 10 + 1 + 63 + 1
"""`:!user@host ` without the nick, before anybody has told us what ours is."""
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
        """Who it is from."""
        return self.source.partition("!")[0]

    def param(self, at):
        """A parameter; empty where there are fewer."""
        return self.params[at] if -len(self.params) <= at < len(self.params) else ""


def parse(text):
    """Return a line; one without a command has an empty one."""
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
    """Return a nick or channel in the form in which two of them are compared."""
    return name.lower().translate(_FOLDED)


def is_channel(target):
    return target[:1] in ("#", "&", "+", "!")


def strip_formatting(text):
    """Return a text without colours, bold, and other control characters."""
    return _FORMATTING.sub("", text)


def cut(text, room):
    """Return the lines of `text`, none longer than `room` bytes; cut between words where there are any.

    Of very many lines, short ones are put together: at a line a second, nobody would wait for the last one.
    """
    lines = []
    for line in text.splitlines():
        rest = strip_formatting(line).replace("\t", "    ").rstrip()
        while rest:
            piece = rest.encode()[:room].decode(errors="ignore")  # half a character at the end goes into the next line
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
