"""Text of files and commands: encodings, line ends, terminal output, syntax, passages.

- `TextForm`: encoding and line ends of a file, which a change keeps.
- `decode_output`, `strip_sequences`, `shorten_output`: output of a command, prepared for a model.
- `syntax_error`: the syntax of Python, JSON, YAML and TOML files.
- `find_lines`, `replace_passage`: find a passage despite different white space.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Sequence

from hermes_agent.core.lazy_types import LazyNamedTuple

SAMPLE_BYTES = 8_192
"""First bytes of a file by which its encoding, and whether it is text, is guessed."""

_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig", "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32", "utf-32-le"),  # before UTF-16: it begins with the same two bytes
    (codecs.BOM_UTF32_BE, "utf-32", "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16", "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16", "utf-16-be"),
)


class TextForm(LazyNamedTuple):
    """The encoding and line ends of a file."""

    encoding: str = "utf-8"
    """The encoding that `read_file` reports."""
    codec: str = "utf-8"
    """The codec for the bytes after the byte order mark."""
    bom: bytes = b""
    ends: str = "lf"
    """`lf`, `crlf`, or `mixed`, which is kept."""

    def plain(self, text: str) -> str:
        """Return the text with LF line ends, if all its lines end with CR LF."""
        return text.replace("\r\n", "\n") if self.ends == "crlf" else text

    def encode(self, text: str) -> bytes:
        """Return the bytes of a plain text in this form.

        Raises:
            ValueError: the encoding lacks a character, or the text has a lone surrogate.
        """
        if self.ends == "crlf":
            text = text.replace("\r\n", "\n").replace("\n", "\r\n")
        try:
            return self.bom + text.encode(self.codec)
        except UnicodeEncodeError as exc:
            character = text[exc.start]
            if "\ud800" <= character <= "\udfff":
                raise ValueError(f"the new text holds half a character (a lone surrogate) at {exc.start}") from exc
            raise ValueError(f"{self.encoding} has no character {character!r} (U+{ord(character):04X})") from exc


UTF8 = TextForm()


def decode_text(data: bytes) -> tuple[str, TextForm]:
    """Return the text of a file without byte order mark and with its line ends, and its form.

    The form encodes the plain text to exactly these bytes.

    Raises:
        ValueError: the file is binary, or damaged.
    """
    bom, encoding, codec = _bom(data)
    body = data[len(bom) :]
    try:
        text = body.decode(codec)
    except UnicodeDecodeError as exc:
        if codec != "utf-8":
            raise ValueError(f"its {encoding} is damaged at byte {len(bom) + exc.start:,}") from exc
        if b"\0" in data:
            raise ValueError("it is binary") from exc
        bom, encoding, codec, text = b"", "latin-1", "latin-1", data.decode("latin-1")
    form = TextForm(encoding, codec, bom, _line_ends(text))
    if form.encode(form.plain(text)) != data:  # Python's decoders take nothing else today
        raise ValueError(f"its {encoding} is damaged")
    return text, form


def guess_encoding(sample: bytes) -> str | None:
    """Return the encoding of a text by its first bytes, or None for a binary file."""
    bom, encoding, _ = _bom(sample)
    if bom:
        return encoding
    if b"\0" in sample:
        return None
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)
    except UnicodeDecodeError:
        return "latin-1"
    return "utf-8"


def guess_form(beginning: bytes) -> TextForm | None:
    """Return the form of a text by its first bytes, or None for a binary file."""
    encoding = guess_encoding(beginning)
    if encoding is None:
        return None
    bom, _, codec = _bom(beginning)
    codec = codec if bom else encoding
    text = codecs.getincrementaldecoder(codec)("replace").decode(beginning[len(bom) :])
    return TextForm(encoding, codec, bom, _line_ends(text))


def _line_ends(text: str) -> str:
    """Return `crlf` when all lines end so, `lf` when none does, else `mixed` (also for CR CR LF)."""
    crlf = text.count("\r\n")
    if not crlf:
        return "lf"
    return "crlf" if crlf == text.count("\n") and "\r\r\n" not in text else "mixed"


def _bom(data: bytes) -> tuple[bytes, str, str]:
    return next((entry for entry in _BOMS if data.startswith(entry[0])), (b"", "utf-8", "utf-8"))


HEAD_SHARE = 0.4
"""Share of the limit for the beginning (plugin contract §3.2)."""

_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|(?=\n)|\Z)"  # OSC, DCS, SOS, PM, APC: titles, links
    r"|\x1b[ -/]*[0-~]",  # the rest: charset, reset
    re.DOTALL,
)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_LEFT_OUT = re.compile(r"\[[\d,]+ bytes left out\]")


def decode_output(head: bytes, tail: bytes, omitted: int) -> str:
    """Return captured output as text.

    Where a part was omitted, the cut is at the next line break, so that no line, and no secret in it, is shown
    in part; without a line break nearby it is cut as it is.
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


def shorten_output(text: str, limit: int, *, max_lines: int, max_line_chars: int) -> str:
    """Return beginning and end of a text: about `limit` characters, `max_lines` shortened lines."""
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


def syntax_error(path: str, text: str) -> str:
    """Return the first syntax error with its line; empty for none, or for an unknown language."""
    check = _CHECKS.get(path.rpartition(".")[2].lower())
    if check is None or "." not in path.rpartition("/")[2]:
        return ""
    try:
        check(text)
    except RecursionError:
        return ""
    except (SyntaxError, ValueError) as exc:
        if isinstance(exc, SyntaxError):
            return f"line {exc.lineno}: {exc.msg}"
        return str(exc)[:300]
    return ""


def _python(text: str) -> None:
    import ast  # few calls check a syntax, here and below

    ast.parse(text)


def _json(text: str) -> None:
    import json

    json.loads(text)


def _yaml(text: str) -> None:
    import yaml

    try:
        for _ in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            pass
    except yaml.YAMLError as exc:
        raise ValueError(" ".join(str(exc).split())) from None


def _toml(text: str) -> None:
    import tomllib

    tomllib.loads(text)


_CHECKS: dict[str, Callable[[str], None]] = {"py": _python, "json": _json, "yaml": _yaml, "yml": _yaml, "toml": _toml}


_ALIKE = str.maketrans(
    {"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2013": "-", "\u2014": "-", "\u00a0": " "}
)


def _collapsed(line: str) -> str:
    return re.sub(r"\s+", " ", line.translate(_ALIKE)).strip()


_WAYS: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("exact", str),
    ("but for blanks at line ends", str.rstrip),
    ("but for indentation", str.strip),
    ("but for blanks and typographic characters", _collapsed),
)
"""Ways to compare lines, strictest first; each is tried when those before found nothing."""


class FuzzyMatch(LazyNamedTuple):
    """The places of a passage."""

    starts: list[int]
    """Indexes of the first lines."""
    how: str
    """The differences that were allowed; `exact` for none."""


def find_lines(lines: Sequence[str], wanted: Sequence[str], first: int = 0) -> FuzzyMatch:
    """Return the places of `wanted` in `lines` from index `first` on, without overlaps."""
    for how, key in _WAYS:
        pattern = [key(line) for line in wanted]
        if how != "exact" and not any(pattern):
            break
        keyed = [key(line) for line in lines]
        starts: list[int] = []
        at = first
        while at + len(pattern) <= len(keyed):
            if keyed[at : at + len(pattern)] == pattern:
                starts.append(at)
                at += max(len(pattern), 1)
            else:
                at += 1
        if starts:
            return FuzzyMatch(starts, how)
    return FuzzyMatch([], "")


def reindent(new: Sequence[str], wanted: Sequence[str], found: Sequence[str]) -> list[str]:
    """Return `new` with the indentation that `wanted` has in the text."""
    for old, present in zip(wanted, found, strict=True):
        if old.strip():
            before, now = _indent(old), _indent(present)
            if before == now:
                break
            return [now + line[len(before) :] if line.strip() and line.startswith(before) else line for line in new]
    return list(new)


def replace_passage(text: str, old: str, new: str, *, everywhere: bool = False) -> tuple[str, int, str]:
    """Return the text with `old` replaced, the number of replacements, and how `old` was found.

    Raises:
        ValueError: `old` is missing, or at several places; the message has the remedy.
    """
    if old == new:
        raise ValueError("`old_string` and `new_string` are the same")
    count = text.count(old)
    if count > 1 and not everywhere:
        raise ValueError(f"`old_string` is there {count} times: give more of the lines around it, or set `replace_all`")
    if count:
        first, *others = text.split(old)
        within = "\n" not in old  # what has line ends of its own was found with them
        return first + "".join((_fitting(new, rest) if within else new) + rest for rest in others), count, "exact"
    lines = text.split("\n")
    cuts: tuple[Callable[[str], str], ...] = (lambda part: part.removesuffix("\n"), lambda part: part.strip("\n"))
    for cut in cuts:  # as it is, then as it may be meant
        wanted, fresh = cut(old).split("\n"), cut(new).split("\n") if new else []
        found = find_lines(lines, wanted)
        if found.starts:
            break
    else:
        raise ValueError(f"`old_string` is not there{_nearest(lines, wanted)}")
    if len(found.starts) > 1 and not everywhere:
        places = ", ".join(str(start + 1) for start in found.starts[:10])
        raise ValueError(f"`old_string` fits {len(found.starts)} places (lines {places}): give more lines around it")
    for start in reversed(found.starts):
        present = lines[start : start + len(wanted)]
        lines[start : start + len(wanted)] = adapt_line_ends(reindent(fresh, wanted, present), present)
    return "\n".join(lines), len(found.starts), found.how


def adapt_line_ends(new: Sequence[str], present: Sequence[str]) -> list[str]:
    """Return lines with CR at the end when all lines that they replace, or adjoin, have it."""
    if present and all(line.endswith("\r") for line in present):
        return [f"{line.removesuffix(chr(13))}\r" for line in new]
    return list(new)


def _fitting(new: str, rest: str) -> str:
    """Return a new text with line ends like the next one after it."""
    if "\n" not in new or not rest.partition("\n")[0].endswith("\r") or "\n" not in rest:
        return new
    return new.replace("\r\n", "\n").replace("\n", "\r\n")


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _nearest(lines: Sequence[str], wanted: Sequence[str]) -> str:
    """Return a hint at the line that is most similar to the first wanted one."""
    import difflib  # a failed call alone needs it

    first = next((line.strip() for line in wanted if line.strip()), "")
    stripped = {line.strip(): number for number, line in reversed(list(enumerate(lines[:20_000], 1)))}
    close = difflib.get_close_matches(first, list(stripped), 1, 0.6) if first else []
    return f"; line {stripped[close[0]]} is similar: {close[0][:200]!r}" if close else ""
