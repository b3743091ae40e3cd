"""A parsed shell script: the commands that it runs, with their words as far as the text shows them.

`ShellScript`, `ShellCommand` and `ShellWord` are the result of `policy.shell.parser`; a `ShellRule` tests a command.

While a word is expanded, its quoted characters are shifted into a private range of Unicode. So quoted braces, white
space, globs and tildes differ from those with a meaning for the shell (`shift_quoted`, `unshift_quoted`).
"""

from __future__ import annotations

import fnmatch
import functools
import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path

from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass

UNKNOWN = "\N{OBJECT REPLACEMENT CHARACTER}"
"""Placeholder in a word for a part that only the running shell knows."""
UNDETERMINED, LIBRARY, NETWORK, CHANGES = "unknown", "library", "network", "changes"
"""Marks: the command runs code that its text does not show, loads a library, uses the network, changes the system."""
INSTALLS, REVEALS, DESTROYS, LATER = "installs", "reveals", "destroys", "later"
"""Marks: the command installs programs, shows stored secrets, destroys data, runs a command later."""
ROOT = frozenset({"sudo", "doas", "run0", "pkexec", "su", "runuser"})
"""Programs that give a command the rights of root."""
SENDS, UNLISTED = "sends", "unlisted"
"""Marks: the command sends a file to another machine; its program is not in the tables."""

MOST_PARTS = 4
"""Most unknown parts of a name for which each may be empty or white space, whatever the others are."""


@functools.cache
def word_list(name: str) -> tuple[str, ...]:
    """Return a list of words in `words.txt`."""
    lines = Path(__file__).with_name("words.txt").read_text("utf-8").splitlines()
    rows = (line.partition(" | ") for line in lines)
    return tuple(word for key, _, words in rows if key == name for word in words.split())


def word_set(name: str) -> frozenset[str]:
    """Return a list of words in `words.txt` as a set."""
    return frozenset(word_list(name))


class ShellWord(LazyNamedTuple):
    """One argument after expansion."""

    text: str
    """The text, with `~` for the home directory and `UNKNOWN` for parts that are not known."""
    sources: tuple[ShellCommand, ...] = ()
    """The commands of a process substitution that this word is: `<(curl x)`."""
    substituted: tuple[ShellCommand, ...] = ()
    """The commands of a substitution that is part of the word: `$(curl x)`."""
    splits: bool = False
    """Whether an unknown part stands outside quotes: it may be white space, so that these are several words."""
    parted: bool = False
    """Whether it is one of the words to which the shell splits one text with expansions: `rm$IFS-rf`."""

    @property
    def is_known(self) -> bool:
        """Whether the whole text is known."""
        return UNKNOWN not in self.text


class ShellRedirect(LazyNamedTuple):
    """A redirect, such as `> target`."""

    operator: str
    """`>`, `>>`, `>|`, `&>`, `<`, …"""
    target: ShellWord
    own: bool = False
    """Whether it names no descriptor: `>` then is the standard output, and `2>` is not."""

    @property
    def writes(self) -> bool:
        """Whether the target is opened for writing."""
        return ">" in self.operator


@lazy_dataclass(frozen=True, slots=True)
class ShellCommand:
    """A simple command."""

    words: tuple[ShellWord, ...]
    """The name first; empty when there are only redirects."""
    redirects: tuple[ShellRedirect, ...] = ()
    before: tuple[ShellCommand, ...] = ()
    """The earlier stages of its pipeline."""
    stdin: str | None = None
    """Its input as far as known: a here-document, a here-string, or the output of the stage before."""
    heredoc: bool = False
    """Whether `stdin` comes from a here-document or here-string."""
    cwd: str = ""
    """The target of an earlier `cd`; empty for the directory in which the shell starts."""
    via: tuple[str, ...] = ()
    """The wrappers that run it: `sudo`, `xargs`, `find -exec`, …"""
    marks: frozenset[str] = frozenset()
    """`UNDETERMINED`, `LIBRARY`, `NETWORK` and the other marks."""

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
        """The arguments that are not options."""
        found, only = [], False
        for arg in self.args:
            if arg == "--" and not only:
                only = True
            elif only or not arg.startswith("-") or arg == "-":
                found.append(arg)
        return tuple(found)

    def has_flag(self, short: str = "", *long: str) -> bool:
        """Return whether a short option (also in a bundle: `-rf`) or a long one (also abbreviated) is given.

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
        """Whether a shell with these arguments runs its input."""
        options = list(itertools.takewhile(lambda arg: arg[:1] in ("-", "+"), self.args))
        if any(re.match(r"-[A-Za-z]*s", option) for option in options):
            return not self.has_flag("c")
        return not [o for o in self.operands if o not in ("-", "/dev/stdin")] and not self.has_flag("c")

    @property
    def has_input(self) -> bool:
        """Whether its input is something other than a terminal."""
        files = (r.target.text for r in self.redirects if r.operator == "<")
        return (
            self.stdin is not None
            or bool(self.before)
            or any(f != "/dev/tty" and f != UNKNOWN and not f.startswith("@") for f in files)
        )

    @property
    def text(self) -> str:
        """Its words in one line."""
        return " ".join(word.text for word in self.words)


class PossibleScript(str):
    """A text that may not be a command: dangerous commands in it count, unknown programs do not."""

    __slots__ = ()


class NestedCode(LazyNamedTuple):
    """The code that a command or a piece of code runs."""

    parts: tuple[ShellCommand | str, ...] = ()
    """Commands, and texts that are shell scripts."""
    marks: frozenset[str] = frozenset()

    def __add__(self, other: NestedCode) -> NestedCode:  # type: ignore[override]
        """Return both."""
        return NestedCode(self.parts + other.parts, self.marks | other.marks)

    @classmethod
    def of(cls, parts: Iterable[ShellCommand | str | NestedCode]) -> NestedCode:
        """Combine several parts into one."""
        found = cls()
        for part in parts:
            found += part if isinstance(part, NestedCode) else cls((part,))
        return found


class ShellScript(LazyNamedTuple):
    """All commands that a text would run, in order, with nested ones."""

    commands: tuple[ShellCommand, ...]
    fork_bomb: bool = False
    problem: str = ""
    """Why the text cannot be analysed; empty when it can."""
    assigns: bool = False
    """Whether the script sets variables, on which its commands may depend."""


SHIFT = 0xF0000
SPECIAL = frozenset(f"{{}},*?[]~ \t\n{UNKNOWN}")
MOST = 64
"""Most words of one brace expansion."""

MOST_CUT = 1_000
"""Most characters of a value that a pattern cuts; a replacement result has at most their square."""

_LOOKALIKES = str.maketrans("асеорхуіјѕԁһկոսаВЕКМНОРСТХ", "aceopxyijsdhknsaBEKMHOPCTX")
_INVISIBLE = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\u00ad]")
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[@-_]")
_SIMPLE = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "v": "\v"}


def shift_quoted(text: str) -> str:
    """Shift the special characters of a quoted text."""
    return "".join(chr(ord(c) + SHIFT) if c in SPECIAL else c for c in text)


def unshift_quoted(text: str) -> str:
    """Undo `shift_quoted`."""
    return "".join(chr(ord(c) - SHIFT) if ord(c) >= SHIFT and chr(ord(c) - SHIFT) in SPECIAL else c for c in text)


def unescape(text: str) -> str:
    """Remove the backslashes from an unquoted text and shift the characters that they protect."""
    return re.sub(r"\\(.)", lambda m: "" if m[1] == "\n" else shift_quoted(m[1]), text, flags=re.DOTALL)


def decode_ansi_c(text: str) -> str:
    r"""Decode the escapes of an ANSI-C string, such as `\x41` and `\u0041`."""

    def decode(match: re.Match[str]) -> str:
        hexadecimal, octal, letter = match[1] or match[2] or match[3], match[4], match[5]
        if hexadecimal:
            return chr(min(int(hexadecimal, 16), 0x10FFFF))
        return chr(int(octal, 8) & 0xFF) if octal else _SIMPLE.get(letter, letter)

    pattern = r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|(.))"
    return re.sub(pattern, decode, text, flags=re.DOTALL)


def expand_braces(text: str) -> list[str]:
    """Return the expansion of `a{b,c}d`; for a text without such a list, the text alone."""
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
    """Return the result of `${name OPERATOR argument}` for a value."""
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
    """Return a value without the shortest or longest prefix or suffix that matches a pattern."""
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
    return fnmatch.translate(_closed(plain)).removeprefix("(?s:").removesuffix(")\\Z")


def has_glob(text: str) -> bool:
    """Return whether a text has `*`, `?` or a pair of brackets with something between."""
    return "*" in text or "?" in text or 0 <= text.find("[") < text.rfind("]") - 1


def matches_glob(name: str, pattern: str) -> bool:
    """Return whether a glob that may be very long matches a name."""
    return fnmatch.fnmatchcase(name, _closed(pattern))


def _closed(pattern: str) -> str:
    """Return a glob in which each bracket is closed: for each open one `fnmatch` reads the whole rest."""
    end = pattern.rfind("]") + 1
    return pattern[:end] + pattern[end:].replace("[", "[[]")


def fold(text: str) -> str:
    """Return a text without terminal colours, invisible characters and width variants of letters."""
    return unicodedata.normalize("NFKC", _INVISIBLE.sub("", _ANSI.sub("", text)))


def fold_names(text: str) -> str:
    """Return a text with look-alikes of Latin letters replaced by Latin letters."""
    return text.translate(_LOOKALIKES)


class ShellRule(LazyNamedTuple):
    """A kind of danger, and the test for it."""

    key: str
    """The text for the user, and an entry of `command_allowlist`."""
    test: Callable[[ShellCommand], bool]
    detail: Callable[[ShellCommand], str] | None = None
    """Returns a suffix of the key, for keys about one program."""

    def key_for(self, command: ShellCommand) -> str:
        """Return the key when the command is dangerous in this way, else ""."""
        if not self.test(command):
            return ""
        return self.key if self.detail is None else f"{self.key}: {self.detail(command)}"
