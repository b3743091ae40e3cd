"""A shell script as values: the commands that it runs, with their words as far as they can be known.

Texts as the shell sees them: quoting, braces, white space, escapes.

While a word is put together its quoted characters are shifted into a private range of Unicode, so that braces, white
space, globs and tildes that are quoted are told from those that mean something.

One rule.
"""

from __future__ import annotations

import fnmatch
import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

UNKNOWN = "\N{OBJECT REPLACEMENT CHARACTER}"
"""Stands in a word for a part that only the running shell knows."""
UNDETERMINED, LIBRARY, NETWORK, CHANGES = "unknown", "library", "network", "changes"
"""Marks of a command: it runs what its text does not tell, loads a library, reaches the network, changes the system."""
INSTALLS, REVEALS, DESTROYS, LATER = "installs", "reveals", "destroys", "later"
"""Further ones: it installs programs, shows secrets that are kept, destroys data, runs something later."""
SENDS, UNLISTED = "sends", "unlisted"
"""It sends a file to another machine; it is a program that nobody listed."""


class ShellWord(NamedTuple):
    """One argument after expansion."""

    text: str
    """`~` for the home directory, `UNKNOWN` for what cannot be told."""
    sources: tuple[ShellCommand, ...] = ()
    """The commands of a process substitution that this word is: `<(curl x)`."""
    substituted: tuple[ShellCommand, ...] = ()
    """The commands whose output became part of the word: `$(curl x)`."""

    @property
    def is_known(self) -> bool:
        """Whether the whole text is."""
        return UNKNOWN not in self.text


class ShellRedirect(NamedTuple):
    """`> target` and its siblings."""

    operator: str
    """`>`, `>>`, `>|`, `&>`, `<`, …"""
    target: ShellWord

    @property
    def writes(self) -> bool:
        """Whether the target is opened for writing."""
        return ">" in self.operator


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """A simple command."""

    words: tuple[ShellWord, ...]
    """The name first; empty when there are only redirects."""
    redirects: tuple[ShellRedirect, ...] = ()
    before: tuple[ShellCommand, ...] = ()
    """The earlier stages of its pipeline."""
    stdin: str | None = None
    """What it reads, as far as known: here-document, here-string, or text of the stage before."""
    heredoc: bool = False
    """Whether `stdin` comes from a here-document or here-string."""
    cwd: str = ""
    """Where an earlier `cd` went; empty when it is the shell's own directory."""
    via: tuple[str, ...] = ()
    """What runs it: `sudo`, `xargs`, `find -exec`, …"""
    marks: frozenset[str] = frozenset()
    """`UNDETERMINED`, `LIBRARY`, `NETWORK`."""

    @property
    def name(self) -> str:
        """The program without its directory; empty when there is none."""
        return self.words[0].text.rpartition("/")[2] if self.words else ""

    @property
    def args(self) -> tuple[str, ...]:
        """The arguments."""
        return tuple(word.text for word in self.words[1:])

    @property
    def operands(self) -> tuple[str, ...]:
        """The arguments that are no options."""
        found, only = [], False
        for arg in self.args:
            if arg == "--" and not only:
                only = True
            elif only or not arg.startswith("-") or arg == "-":
                found.append(arg)
        return tuple(found)

    def has_flag(self, short: str = "", *long: str) -> bool:
        """Say whether a short option (also within a bundle: `-rf`) or a long one (also cut short) is there.

        Args:
            short: letters, any of which counts.
            long: names with their dashes.
        """
        for arg in self.args:
            if arg == "--":
                return False
            if arg.startswith("--"):
                given = arg.partition("=")[0]
                if any(name == given or (len(given) > 4 and name.startswith(given)) for name in long):
                    return True
            elif arg.startswith("-") and set(short) & set(arg[1:]):
                return True
        return False

    @property
    def reads_code(self) -> bool:
        """Whether a shell with these arguments runs what it reads."""
        return not [o for o in self.operands if o not in ("-", "/dev/stdin")] and not self.has_flag("c")

    @property
    def has_input(self) -> bool:
        """Whether it reads something else than a terminal."""
        files = (r.target.text for r in self.redirects if r.operator == "<")
        return (
            self.stdin is not None
            or bool(self.before)
            or any(f != "/dev/tty" and f != UNKNOWN and not f.startswith("@") for f in files)
        )

    @property
    def text(self) -> str:
        """Its words, for rules that look at what an argument says."""
        return " ".join(word.text for word in self.words)


class PossibleScript(str):
    """A text that may be a command: what is dangerous in it counts, but not that its words name no known program."""

    __slots__ = ()


class NestedCode(NamedTuple):
    """What a command or a piece of code runs in its turn."""

    parts: tuple[ShellCommand | str, ...] = ()
    """Commands, and texts that are shell scripts."""
    marks: frozenset[str] = frozenset()

    def __add__(self, other: NestedCode) -> NestedCode:  # type: ignore[override]
        """Return both."""
        return NestedCode(self.parts + other.parts, self.marks | other.marks)

    @classmethod
    def of(cls, parts: Iterable[ShellCommand | str | NestedCode]) -> NestedCode:
        """Return one of many."""
        found = cls()
        for part in parts:
            found += part if isinstance(part, NestedCode) else cls((part,))
        return found


class ShellScript(NamedTuple):
    """Everything that a text would run, in order, whatever is nested in it included."""

    commands: tuple[ShellCommand, ...]
    fork_bomb: bool = False
    problem: str = ""
    """Why it cannot be told what the text does; empty when it can."""
    assigns: bool = False
    """Whether it sets variables: what a command does may depend on them."""


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


class ShellRule(NamedTuple):
    """What is dangerous, and how it is told."""

    key: str
    """What a person reads, and what `command_allowlist` holds."""
    test: Callable[[ShellCommand], bool]
    detail: Callable[[ShellCommand], str] | None = None
    """What follows the key, where that is about one program and not about a kind of harm."""

    def key_for(self, command: ShellCommand) -> str:
        """Return the key where the command is dangerous in this way, else an empty text."""
        if not self.test(command):
            return ""
        return self.key if self.detail is None else f"{self.key}: {self.detail(command)}"
