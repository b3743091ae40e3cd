"""Texts as the shell sees them: quoting, braces, white space, escapes.

While a word is put together its quoted characters are shifted into a private range of Unicode, so that braces, white
space, globs and tildes that are quoted are told from those that mean something.
"""

from __future__ import annotations

import fnmatch
import re
import unicodedata

from hermes_agent.policy.shell.script import UNKNOWN

__all__ = [
    "decode_ansi_c",
    "expand_braces",
    "apply_expansion",
    "fold",
    "fold_names",
    "shift_quoted",
    "unescape",
    "unshift_quoted",
]

SHIFT = 0xF0000
SPECIAL = frozenset("{},*?[]~ \t\n")
MOST = 64
"""Words that one brace expression may become; more are not needed to judge it."""

MOST_CUT = 1_000
"""Characters of a value that is cut by a pattern; a replaced one becomes no longer than their square."""

_LOOKALIKES = str.maketrans("асеорхуіјѕԁһկոսаВЕКМНОРСТХ", "aceopxyijsdhknsaBEKMHOPCTX")
_INVISIBLE = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\u00ad]")
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[@-_]")
_SIMPLE = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "v": "\v"}


def shift_quoted(text: str) -> str:
    """Shift the special characters of a text that stood in quotes."""
    return "".join(chr(ord(c) + SHIFT) if c in SPECIAL else c for c in text)


def unshift_quoted(text: str) -> str:
    """Undo `quoted`."""
    return "".join(chr(ord(c) - SHIFT) if ord(c) >= SHIFT and chr(ord(c) - SHIFT) in SPECIAL else c for c in text)


def unescape(text: str) -> str:
    """Take the backslashes out of an unquoted text; what they protect is shifted."""
    return re.sub(r"\\(.)", lambda m: "" if m[1] == "\n" else shift_quoted(m[1]), text, flags=re.DOTALL)


def decode_ansi_c(text: str) -> str:
    r"""Return what stands between the quotes of `$'…'`: `\x41`, `\101`, `\u0041`, `\n`."""

    def one(match: re.Match[str]) -> str:
        hexadecimal, octal, letter = match[1] or match[2] or match[3], match[4], match[5]
        if hexadecimal:
            return chr(min(int(hexadecimal, 16), 0x10FFFF))
        return chr(int(octal, 8) & 0xFF) if octal else _SIMPLE.get(letter, letter)

    pattern = r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|(.))"
    return re.sub(pattern, one, text, flags=re.DOTALL)


def expand_braces(text: str) -> list[str]:
    """Expand `a{b,c}d`; a text without such a list is returned alone."""
    found, done = [text], list[str]()
    while found and len(found) + len(done) < MOST:
        item = found.pop(0)
        match = re.search(r"\{([^{}]*,[^{}]*)\}", item)
        if match is None:
            done.append(item)
        else:
            found[:0] = [item[: match.start()] + part + item[match.end() :] for part in match[1].split(",")]
    return done + found


def apply_expansion(value: str, operator: str, argument: str) -> str:
    """Return what `${name OPERATOR argument}` makes of a value."""
    match operator:
        case "%" | "%%" | "#" | "##":
            return _cut(value, operator, argument)
        case ":":
            numbers = re.fullmatch(r"[\s(]*(-?\d{1,9})[\s)]*(?::\s*(-?\d{1,9})\s*)?", argument)
            if numbers is None:
                return UNKNOWN
            rest = value[int(numbers[1]) :]
            return rest if numbers[2] is None else rest[: int(numbers[2])]
        case "/" | "//":
            pattern, _, new = argument.partition("/")
            if len(value) * (len(new) + 1) > MOST_CUT * MOST_CUT:
                return UNKNOWN
            found = "^" + _glob(pattern[1:]) if pattern.startswith("#") else _glob(pattern)
            return re.sub(found, lambda _: new, value, count=0 if operator == "//" else 1) if pattern else value
        case "^" | ",":
            return (value[:1].upper() if operator == "^" else value[:1].lower()) + value[1:]
        case "^^" | ",,":
            return value.upper() if operator == "^^" else value.lower()
    return {"U": value.upper(), "L": value.lower(), "E": decode_ansi_c(value)}.get(argument, value)


def _cut(value: str, operator: str, pattern: str) -> str:
    """Return a value without the shortest or longest beginning or end that a pattern fits."""
    fits = re.compile(_glob(pattern), re.DOTALL)
    places = range(len(value) + 1) if len(value) <= MOST_CUT else ()
    if operator[0] == "#":
        ends = [at for at in places if fits.fullmatch(value, 0, at)]
        return value[(ends[0] if operator == "#" else ends[-1]) if ends else 0 :]
    starts = [at for at in places if fits.fullmatch(value, at)]
    return value[: (starts[-1] if operator == "%" else starts[0]) if starts else len(value)]


def _glob(pattern: str) -> str:
    """Return a glob, quoted or not, as a regular expression."""
    plain = re.sub(r"[\"'\\]", "", pattern)
    return fnmatch.translate(plain).removeprefix("(?s:").removesuffix(")\\Z")


def fold(text: str) -> str:
    """Return the text without colours, invisible characters and wide forms of letters."""
    return unicodedata.normalize("NFKC", _INVISIBLE.sub("", _ANSI.sub("", text)))


def fold_names(text: str) -> str:
    """Return the text with the letters of other alphabets that look like Latin ones made Latin."""
    return text.translate(_LOOKALIKES)
