"""What a command printed, made fit for a model: decoded, without control sequences, its middle left out."""

from __future__ import annotations

import re

__all__ = ["HEAD_SHARE", "decode_output", "shorten", "strip_sequences", "printable"]

HEAD_SHARE = 0.4
"""Part of the limit that the beginning gets (plugin contract §3.2)."""

_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|(?=\n)|\Z)"  # OSC, DCS, SOS, PM, APC: titles, links
    r"|\x1b[ -/]*[0-~]",  # the rest: charset, reset
    re.DOTALL,
)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_HIDING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
"""What makes a text look other than it is: control characters, changes of direction, zero width."""

_LEFT_OUT = re.compile(r"\[[\d,]+ bytes left out\]")


def decode_output(head: bytes, tail: bytes, omitted: int) -> str:
    """Return what was captured as text.

    Where a part was left out, the cut goes to the next line break, so that no line, and no secret in one, is shown
    in part; a text without line breaks nearby is cut where it is.
    """
    if not omitted:
        return (head + tail).decode("utf-8", "replace")
    before = head.rfind(b"\n", len(head) // 2) + 1 or len(head)
    after = tail.find(b"\n", 0, len(tail) // 2) + 1
    gone = omitted + len(head) - before + after
    first, last = head[:before].decode("utf-8", "ignore"), tail[after:].lstrip(bytes(range(0x80, 0xC0)))
    return f"{first}\n[{gone:,} bytes left out]\n{last.decode('utf-8', 'replace')}"


def strip_sequences(text: str) -> str:
    """Return the text without terminal control sequences; line ends become `\\n`."""
    return _CONTROL.sub("", _SEQUENCE.sub("", text)).replace("\r\n", "\n")


def shorten(text: str, limit: int, *, max_lines: int, max_line_chars: int) -> str:
    """Return the beginning and the end of a text: about `limit` characters, `max_lines` lines, each cut to size."""
    lines = [
        line if len(line) <= max_line_chars else f"{line[:max_line_chars]}… [{len(line) - max_line_chars:,} more]"
        for line in text.split("\n")
    ]
    if len(lines) > max_lines:
        first = int(max_lines * HEAD_SHARE)
        last = len(lines) - (max_lines - first)
        earlier = [line for line in lines[first:last] if _LEFT_OUT.fullmatch(line)]
        lines[first:last] = ["", *earlier, f"[{last - first - len(earlier):,} lines left out]"]
    text = "\n".join(lines)
    if len(text) <= limit:
        return text
    head = text[: int(limit * HEAD_SHARE)]
    tail = text[len(text) - (limit - len(head)) :]
    head = head[: head.rfind("\n", len(head) // 2) + 1 or len(head)]
    tail = tail[tail.find("\n", 0, len(tail) // 2) + 1 :]
    return f"{head}\n[{len(text) - len(head) - len(tail):,} characters left out]\n{tail}"


def printable(text: str) -> str:
    """Return a text for a person to judge: characters that would hide or reorder a part of it are written out."""
    return _HIDING.sub(lambda match: match[0] if match[0] == "\n" else f"\\u{ord(match[0]):04x}", text)
